package api

import (
	"encoding/json"
	"fmt"
	"net/http"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/templatefile"
)

var templateMedia = []string{"application/yaml", "application/x-yaml", "text/yaml", jsonMedia}

func (s *server) registerTemplate(x *request) error {
	doc, media, err := x.body()
	if err != nil {
		return err
	}
	parse := templatefile.Parse
	if media == jsonMedia {
		parse = templatefile.ParseJSON
	}
	t, warnings, err := parse(doc)
	if strict := x.bool("strict"); err == nil && strict != nil && *strict {
		err = templatefile.Strict(warnings)
	}
	if err != nil {
		return err
	}
	stored, created, err := s.engine.RegisterTemplate(x.ctx, t, string(doc))
	if err != nil {
		return err
	}
	status := http.StatusOK
	if created {
		status = http.StatusCreated
	}
	return x.answer(status, apiv1.RegisteredTemplate{Template: apiv1.FromTemplate(stored), Created: created, Warnings: append([]tasker.Fault{}, warnings...)})
}

func (s *server) listTemplates(x *request) error {
	limit := x.int("limit")
	list, err := s.db.Templates(x.ctx, x.text("namespace"), limit+1, x.int("offset"))
	if err != nil {
		return err
	}
	more := len(list) > limit
	list = list[:min(len(list), limit)]
	return x.answer(http.StatusOK, apiv1.TemplateList{
		Templates: convert(list, apiv1.FromTemplate), Pagination: x.pageOf(len(list), more),
	})
}

func (s *server) oneTemplate(x *request) error {
	var words [3]string
	for i, name := range []string{"namespace", "name", "version"} {
		var err error
		if words[i], err = x.word(name); err != nil {
			return err
		}
	}
	t, err := s.db.Template(x.ctx, words[0], words[1], words[2])
	if err != nil {
		return err
	}
	configuration, err := configurationOf(t)
	if err != nil {
		return err
	}
	return x.answer(http.StatusOK, apiv1.TemplateDetail{
		Template: apiv1.FromTemplate(t), Configuration: configuration, Source: t.Source,
	})
}

func configurationOf(t tasker.StoredTemplate) (json.RawMessage, error) {
	doc, err := json.Marshal(t.Template)
	if err != nil {
		return nil, fmt.Errorf("encode the template: %w", err)
	}
	return doc, nil
}
