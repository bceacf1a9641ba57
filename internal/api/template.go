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
			method: "POST", path: "/v1/templates", id: "registerTemplate", class: overload.Creates, permission: access.WriteTemplates, tag: "templates",
			summary: "Register a template",
			doc: "A version that tasks use cannot change: a different template with this version is a CONFLICT. " +
				"The same template again returns 200 and changes nothing. INVALID lists every fault with its line. Keys: namespace_name (or namespace), name, version, " +
				"description, input_schema (JSON Schema), lifecycle, steps[] {name, type, handler {callable, initialization}, dependencies, retry, " +
				"timeout_seconds, worker_queue_ttl_ms}, environments.",
			params: []param{boolParam("strict", "Reject keys without effect instead of returning warnings.")},
			body:   map[string]any{}, media: templateMedia, maxBody: tasker.MaxTemplateBytes,
			responses: createdOrOKResponse(apiv1.RegisteredTemplate{}),
			serve:     s.registerTemplate,
		},
		{
			method: "GET", path: "/v1/templates", id: "listTemplates", class: overload.Reads, permission: access.ReadTemplates, tag: "templates",
			summary:   "List templates by namespace and name, newest version first",
			params:    []param{textParam("namespace", "Filter by namespace.", 128), limitParam(defaultLimit), offsetParam()},
			responses: okResponse(apiv1.TemplateList{}), serve: s.listTemplates,
		},
		{
			method: "GET", path: "/v1/templates/{namespace}/{name}/{version}", id: "getTemplate", class: overload.Reads, permission: access.ReadTemplates, tag: "templates",
			summary:   "Get a version of a template, with its graph",
			responses: okResponse(apiv1.TemplateDetail{}), serve: s.getTemplate,
		},
		{
			method: "POST", path: "/v1/templates/{namespace}/{name}/{version}/retire", id: "retireTemplate", class: overload.Operations, permission: access.WriteTemplates, tag: "templates",
			summary: "Retire a version of a template, so that new tasks no longer use it",
			doc: "New tasks without a version use the newest version that is not retired; new tasks with this version are a CONFLICT. " +
				"Existing tasks continue. A retired version keeps its first reason.",
			body: apiv1.RetireTemplate{}, responses: okResponse(apiv1.Template{}),
			serve: func(x *request) error { return s.retireTemplate(x, true) },
		},
		{
			method: "POST", path: "/v1/templates/{namespace}/{name}/{version}/unretire", id: "unretireTemplate", class: overload.Operations, permission: access.WriteTemplates, tag: "templates",
			summary: "Restore a retired version of a template",
			body:    apiv1.RetireTemplate{}, responses: okResponse(apiv1.Template{}),
			serve: func(x *request) error { return s.retireTemplate(x, false) },
		},
	}
}

var templateMedia = []string{"application/yaml", "application/x-yaml", "text/yaml", jsonMedia}

func (s *server) registerTemplate(x *request) error {
	doc, media, err := x.receivedBody()
	if err != nil {
		return err
	}
	parse := templatefile.Parse
	if media == jsonMedia {
		parse = templatefile.ParseJSON
	}
	t, warnings, err := parse(doc)
	if err == nil && x.queryFlag("strict") {
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

func (s *server) listTemplates(x *request) error {
	limit := x.queryInt("limit")
	list, err := s.db.Templates(x.ctx, x.queryText("namespace"), limit+1, x.queryInt("offset"))
	if err != nil {
		return err
	}
	more := len(list) > limit
	list = list[:min(len(list), limit)]
	return x.respond(http.StatusOK, apiv1.TemplateList{
		Templates: convert(list, apiv1.FromTemplate), Pagination: x.newPagination(len(list), more),
	})
}

func (x *request) readTemplateVersion() tasker.TemplateVersion {
	return tasker.TemplateVersion{Namespace: x.pathText("namespace"), Name: x.pathText("name"),
		Version: x.pathText("version")}
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
