package app

import (
	"context"
	"fmt"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/engine"
	"tasker.example/tasker/internal/templatefile"
)

// loudFaults is the maximum number of errors in template files that are logged.
const loudFaults = 50

// registerTemplates registers the templates in the configured directory. Invalid files do not prevent the
// start: they are logged and reported by readiness and a metric. With StrictTemplates they are an error.
func (s *starter) registerTemplates(ctx context.Context, e *engine.Engine) error {
	dir := s.Config.Server.Templates
	if dir == "" {
		return nil
	}
	files, faults, err := templatefile.LoadDir(dir)
	if err != nil {
		return err
	}
	for _, f := range files {
		err := s.registerTemplate(ctx, e, f)
		switch code := tasker.CodeOf(err); {
		case err == nil:
		case code == tasker.Internal || code == tasker.Unavailable:
			return fmt.Errorf("register template %s: %w", f.Path, err)
		default: // the version is in use, or a quota is exceeded
			faults = append(faults, templatefile.FileFault{File: f.Path, Fault: tasker.Fault{Message: err.Error()}})
		}
	}
	s.templateFaults = faults
	if s.StrictTemplates {
		return templatefile.NewFaultsError(dir, faults)
	}
	for i, f := range faults {
		if i == loudFaults {
			s.Log.ErrorContext(ctx,
				"more template errors: list them with tasker-ctl template validate", "faults", len(faults)-i)
			break
		}
		s.Log.ErrorContext(ctx, "invalid template file not registered", "file", f.File, "fault", f.Fault.String())
	}
	return nil
}

func (s *starter) registerTemplate(ctx context.Context, e *engine.Engine, f templatefile.File) error {
	for _, w := range f.Warnings {
		s.Log.WarnContext(ctx, "template key has no effect", "file", f.Path, "warning", w.String())
	}
	var stored tasker.StoredTemplate
	var created bool
	err := s.try(ctx, func() (err error) {
		stored, created, err = e.RegisterTemplate(ctx, f.Template, f.Source)
		return err
	})
	if err == nil && created {
		s.Log.InfoContext(ctx, "template registered", "file", f.Path, "template", stored.Namespace+"/"+stored.Name, "version", stored.Version)
	}
	return err
}

// faults describes the errors in template files that were not registered.
func (s *starter) faults() []string {
	list := make([]string, len(s.templateFaults))
	for i, f := range s.templateFaults {
		list[i] = f.String()
	}
	return list
}

// countBrokenFiles returns the number of template files that were not registered.
func (s *starter) countBrokenFiles() int64 {
	files := map[string]bool{}
	for _, f := range s.templateFaults {
		files[f.File] = true
	}
	return int64(len(files))
}
