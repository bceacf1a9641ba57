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

func (s *server) registerTemplate(x *request, q apiv1.RegisterTemplateQuery) (answer apiv1.RegisteredTemplate, err error) {
	doc, media, err := x.receivedBody()
	if err != nil {
		return answer, err
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
		return answer, err
	}
	stored, created, err := s.engine.RegisterTemplate(x.ctx, t, string(doc))
	if !created {
		x.status = http.StatusOK
	}
	return apiv1.RegisteredTemplate{Template: apiv1.FromTemplate(stored), Created: created, Warnings: orEmpty(warnings)}, err
}

func (s *server) listTemplates(x *request, q apiv1.NamespaceQuery) (apiv1.TemplateList, error) {
	list, err := s.db.Templates(x.ctx, q.Namespace, q.Limit+1, q.Offset)
	more := len(list) > q.Limit
	list = list[:min(len(list), q.Limit)]
	return apiv1.TemplateList{Templates: convert(list, apiv1.FromTemplate), Pagination: newPagination(q.Limit, q.Offset, len(list), more)}, err
}

func (x *request) readTemplateVersion() tasker.TemplateVersion {
	return tasker.TemplateVersion{Namespace: x.pathText("namespace"), Name: x.pathText("name"), Version: x.pathText("version")}
}

// retireTemplate returns a handler that retires or unretires a template version.
func (s *server) retireTemplate(retired bool) func(*request, apiv1.RetireTemplate) (apiv1.Template, error) {
	return func(x *request, req apiv1.RetireTemplate) (apiv1.Template, error) {
		t, err := s.db.RetireTemplate(x.ctx, x.readTemplateVersion(), retired, postgres.Operator{Actor: x.resolveActor(req.By), Reason: req.Reason})
		return apiv1.FromTemplate(t), err
	}
}

func (s *server) getTemplate(x *request) (detail apiv1.TemplateDetail, err error) {
	v := x.readTemplateVersion()
	t, err := s.db.Template(x.ctx, v.Namespace, v.Name, v.Version)
	if err != nil {
		return detail, err
	}
	detail.Template, detail.Source = apiv1.FromTemplate(t), t.Source
	if detail.Configuration, err = json.Marshal(t.Template); err != nil {
		return detail, fmt.Errorf("encode template: %w", err)
	}
	return detail, nil
}

func (s *server) changeTasks(x *request, req apiv1.ChangeTasks) (apiv1.ChangedTasks, error) {
	r := tasker.VersionBatchRequest{
		Template: x.readTemplateVersion(), To: req.ToVersion, Limit: req.Limit, DryRun: req.DryRun, Actor: x.resolveActorOrUnknown(req.By), Reason: req.Reason,
	}
	if req.Before != "" {
		var err error
		if r.Before, err = parseID(req.Before); err != nil {
			return apiv1.ChangedTasks{}, tasker.Errorf(tasker.Invalid, "before %w", err)
		}
	}
	batch, err := s.engine.ChangeVersions(x.ctx, r)
	return apiv1.FromVersionBatch(batch), err
}
