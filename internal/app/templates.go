package app

import (
	"context"
	"fmt"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/engine"
	"tasker.example/tasker/internal/templatefile"
)

// loudFaults is how many faults of template files are logged by themselves.
const loudFaults = 50

// registerTemplates registers the templates of the configured directory. A file that is broken
// stops nobody: it is logged, readiness and a metric tell of it, and the others are registered.
// With StrictTemplates it is an error.
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
			return fmt.Errorf("register the template in %s: %w", f.Path, err)
		default: // a version that is used, or a limit
			faults = append(faults, templatefile.FileFault{File: f.Path, Fault: tasker.Fault{Message: err.Error()}})
		}
	}
	s.templateFaults = faults
	if s.StrictTemplates {
		return templatefile.Faulty(dir, faults)
	}
	for i, f := range faults {
		if i == loudFaults {
			s.Log.ErrorContext(ctx, "more template files have faults; tasker-ctl template validate lists all", "faults", len(faults)-i)
			break
		}
		s.Log.ErrorContext(ctx, "a template file has a fault and was not registered; what was registered before holds", "file", f.File, "fault", f.Fault.String())
	}
	return nil
}

func (s *starter) registerTemplate(ctx context.Context, e *engine.Engine, f templatefile.File) error {
	for _, w := range f.Warnings {
		s.Log.WarnContext(ctx, "a template has a key without effect", "file", f.Path, "warning", w.String())
	}
	var stored tasker.StoredTemplate
	var created bool
	err := s.try(ctx, func() (err error) {
		stored, created, err = e.RegisterTemplate(ctx, f.Template, f.Source)
		return err
	})
	if err == nil && created {
		s.Log.InfoContext(ctx, "registered a template", "file", f.Path, "template", stored.Namespace+"/"+stored.Name, "version", stored.Version)
	}
	return err
}

// faults are the faults of the template files that were not registered, as a person reads them.
func (s *starter) faults() []string {
	list := make([]string, len(s.templateFaults))
	for i, f := range s.templateFaults {
		list[i] = f.String()
	}
	return list
}

// brokenFiles is how many template files were not registered.
func (s *starter) brokenFiles() int64 {
	files := map[string]bool{}
	for _, f := range s.templateFaults {
		files[f.File] = true
	}
	return int64(len(files))
}
