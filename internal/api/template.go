package api

import (
	"encoding/json"
	"fmt"
	"net/http"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/postgres"
	"tasker.example/tasker/internal/templatefile"
)

func (s *server) registerTemplate(x *request, q apiv1.RegisterTemplateQuery) error {
	doc, media, err := x.receivedBody()
	if err != nil {
		return err
	}
	parse := templatefile.Parse
	if media == jsonMedia {
		parse = templatefile.ParseJSON
	}
	t, warnings, err := parse(doc)
	if err == nil && q.Strict {
		err = templatefile.WarningsAsError(warnings)
	}
	if err == nil {
		err = x.checkNamespace(t.Namespace)
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
	return x.respond(status, apiv1.RegisteredTemplate{Template: apiv1.FromTemplate(stored), Created: created, Warnings: append([]tasker.Fault{}, warnings...)})
}

func (s *server) listTemplates(x *request, q apiv1.NamespaceQuery) error {
	list, err := s.db.Templates(x.ctx, q.Namespace, q.Limit+1, q.Offset)
	if err != nil {
		return err
	}
	more := len(list) > q.Limit
	list = list[:min(len(list), q.Limit)]
	return x.respond(http.StatusOK, apiv1.TemplateList{
		Templates: convert(list, apiv1.FromTemplate), Pagination: newPagination(q.Page, len(list), more),
	})
}

func (x *request) readTemplateVersion() tasker.TemplateVersion {
	return tasker.TemplateVersion{Namespace: x.pathText("namespace"), Name: x.pathText("name"), Version: x.pathText("version")}
}

func (s *server) retireTemplate(x *request, retired bool) error {
	var req apiv1.RetireTemplate
	if err := x.read(&req); err != nil {
		return err
	}
	t, err := s.db.RetireTemplate(x.ctx, x.readTemplateVersion(), retired, postgres.Operator{Actor: x.resolveActor(req.By), Reason: req.Reason})
	return respondWith(x, http.StatusOK, t, err, apiv1.FromTemplate)
}

func (s *server) getTemplate(x *request) error {
	v := x.readTemplateVersion()
	t, err := s.db.Template(x.ctx, v.Namespace, v.Name, v.Version)
	if err != nil {
		return err
	}
	configuration, err := json.Marshal(t.Template)
	if err != nil {
		return fmt.Errorf("encode template: %w", err)
	}
	return x.respond(http.StatusOK, apiv1.TemplateDetail{
		Template: apiv1.FromTemplate(t), Configuration: configuration, Source: t.Source,
	})
}
