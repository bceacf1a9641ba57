package api

import (
	"encoding/json"
	"fmt"
	"net/http"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/overload"
	"tasker.example/tasker/internal/postgres"
	"tasker.example/tasker/internal/templatefile"
)

func (s *server) templateRoutes() []*route {
	return []*route{
		{
			method: "POST", path: "/v1/templates", id: "registerTemplate", class: overload.Creates, needs: access.WriteTemplates, tag: "templates",
			summary: "Register a template",
			about: "A version that tasks use cannot change: a different template with this version is a CONFLICT. " +
				"The same template again returns 200 and changes nothing. INVALID lists every fault with its line. Keys: namespace_name (or namespace), name, version, " +
				"description, input_schema (JSON Schema), lifecycle, steps[] {name, type, handler {callable, initialization}, dependencies, retry, " +
				"timeout_seconds, worker_queue_ttl_ms}, environments.",
			params: []param{boolParam("strict", "Reject keys without effect instead of returning warnings.")},
			body:   map[string]any{}, media: templateMedia, maxBody: tasker.MaxTemplateBytes,
			answers: createdOrOK(apiv1.RegisteredTemplate{}),
			serve:   s.registerTemplate,
		},
		{
			method: "GET", path: "/v1/templates", id: "listTemplates", class: overload.Reads, needs: access.ReadTemplates, tag: "templates",
			summary: "List templates by namespace and name, newest version first",
			params:  []param{textParam("namespace", "Filter by namespace.", 128), limitParam(defaultLimit), offsetParam()},
			answers: ok(apiv1.TemplateList{}), serve: s.listTemplates,
		},
		{
			method: "GET", path: "/v1/templates/{namespace}/{name}/{version}", id: "getTemplate", class: overload.Reads, needs: access.ReadTemplates, tag: "templates",
			summary: "Get a version of a template, with its graph",
			answers: ok(apiv1.TemplateDetail{}), serve: s.oneTemplate,
		},
		{
			method: "POST", path: "/v1/templates/{namespace}/{name}/{version}/retire", id: "retireTemplate", class: overload.Operations, needs: access.WriteTemplates, tag: "templates",
			summary: "Retire a version of a template, so that new tasks no longer use it",
			about: "New tasks without a version use the newest version that is not retired; new tasks with this version are a CONFLICT. " +
				"Existing tasks continue. A retired version keeps its first reason.",
			body: apiv1.RetireTemplate{}, answers: ok(apiv1.Template{}),
			serve: func(x *request) error { return s.retireTemplate(x, true) },
		},
		{
			method: "POST", path: "/v1/templates/{namespace}/{name}/{version}/unretire", id: "unretireTemplate", class: overload.Operations, needs: access.WriteTemplates, tag: "templates",
			summary: "Restore a retired version of a template",
			body:    apiv1.RetireTemplate{}, answers: ok(apiv1.Template{}),
			serve: func(x *request) error { return s.retireTemplate(x, false) },
		},
	}
}

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
	if err == nil && x.flag("strict") {
		err = templatefile.Strict(warnings)
	}
	if err == nil {
		err = x.mayUse(t.Namespace)
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

func (x *request) templateVersion() tasker.TemplateVersion {
	return tasker.TemplateVersion{Namespace: x.word("namespace"), Name: x.word("name"), Version: x.word("version")}
}

func (s *server) retireTemplate(x *request, retired bool) error {
	var req apiv1.RetireTemplate
	if err := x.read(&req); err != nil {
		return err
	}
	t, err := s.db.RetireTemplate(x.ctx, x.templateVersion(), retired, postgres.Operator{Actor: x.actor(req.By), Reason: req.Reason})
	return respondWith(x, http.StatusOK, t, err, apiv1.FromTemplate)
}

func (s *server) oneTemplate(x *request) error {
	v := x.templateVersion()
	t, err := s.db.Template(x.ctx, v.Namespace, v.Name, v.Version)
	if err != nil {
		return err
	}
	configuration, err := json.Marshal(t.Template)
	if err != nil {
		return fmt.Errorf("encode template: %w", err)
	}
	return x.answer(http.StatusOK, apiv1.TemplateDetail{
		Template: apiv1.FromTemplate(t), Configuration: configuration, Source: t.Source,
	})
}
