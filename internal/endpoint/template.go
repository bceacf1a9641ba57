package endpoint

import (
	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/overload"
)

var templateMedia = []string{"application/yaml", "application/x-yaml", "text/yaml", "application/json"}

// Templates.
var (
	RegisterTemplate = Of[apiv1.RegisterTemplateQuery, map[string]any, apiv1.RegisteredTemplate]{
		Method: "POST", Path: "/v1/templates", ID: "registerTemplate", Class: overload.Creates, Needs: access.WriteTemplates, Tag: "templates",
		Summary: "Register a template",
		About: "A version that tasks use cannot change: a different template with this version is a CONFLICT. " +
			"The same template again returns 200 and changes nothing. INVALID lists every fault with its line. Keys: namespace_name (or namespace), name, version, " +
			"description, input_schema (JSON Schema), lifecycle, steps[] {name, type, handler {callable, initialization}, dependencies, retry, " +
			"timeout_seconds, worker_queue_ttl_ms}, environments.",
		Statuses: createdOrOK, Media: templateMedia, MaxBody: tasker.MaxTemplateBytes, Repeatable: true,
	}

	ListTemplates = Of[apiv1.NamespaceQuery, None, apiv1.TemplateList]{
		Method: "GET", Path: "/v1/templates", ID: "listTemplates", Class: overload.Reads, Needs: access.ReadTemplates, Tag: "templates",
		Summary: "List templates by namespace and name, newest version first",
	}

	GetTemplate = Of[None, None, apiv1.TemplateDetail]{
		Method: "GET", Path: "/v1/templates/{namespace}/{name}/{version}", ID: "getTemplate", Class: overload.Reads, Needs: access.ReadTemplates, Tag: "templates",
		Summary: "Get a version of a template, with its graph",
	}

	RetireTemplate = Of[None, apiv1.RetireTemplate, apiv1.Template]{
		Method: "POST", Path: "/v1/templates/{namespace}/{name}/{version}/retire", ID: "retireTemplate", Class: overload.Operations, Needs: access.WriteTemplates, Tag: "templates",
		Summary: "Retire a version of a template, so that new tasks no longer use it",
		About: "New tasks without a version use the newest version that is not retired; new tasks with this version are a CONFLICT. " +
			"Existing tasks continue. A retired version keeps its first reason.",
		Repeatable: true,
	}

	UnretireTemplate = Of[None, apiv1.RetireTemplate, apiv1.Template]{
		Method: "POST", Path: "/v1/templates/{namespace}/{name}/{version}/unretire", ID: "unretireTemplate", Class: overload.Operations, Needs: access.WriteTemplates, Tag: "templates",
		Summary:    "Restore a retired version of a template",
		Repeatable: true,
	}

	ChangeTasks = Of[None, apiv1.ChangeTasks, apiv1.ChangedTasks]{
		Method: "POST", Path: "/v1/templates/{namespace}/{name}/{version}/change_tasks", ID: "changeTasks", Class: overload.Operations, Needs: access.OperateSteps, Tag: "templates",
		Summary: "Move a batch of the open tasks of a version to another version",
		About: "Up to 100 tasks, newest first, each in its own transaction, for up to ten seconds; next is the cursor of the next batch. Tasks that cannot be moved are counted by reason. " +
			"Safe to repeat. Tasks created meanwhile are not included: retire the version first.",
		Repeatable: true,
	}
)
