package ctl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/client"
	"tasker.example/tasker/internal/cli"
	"tasker.example/tasker/internal/endpoint"
	"tasker.example/tasker/internal/templatefile"
)

var templateCommand = group(help{
	use: "template", short: "Manage templates",
	example: `  tasker-ctl template validate order.yaml
  tasker-ctl template register order.yaml`,
},
	list(endpoint.ListTemplates, help{
		use: "list", short: "List templates", limit: 50, example: "  tasker-ctl template list --namespace orders",
	}, "No templates.", "namespace, name, version, steps, registered, retired, description", func(t apiv1.Template) []any {
		return []any{t.Namespace, t.Name, t.Version, t.StepCount, t.CreatedAt, t.RetiredAt, t.Description}
	}),
	plain(endpoint.GetTemplate, help{
		use: "get NAMESPACE NAME VERSION", short: "Print the source of a template",
		example: `  tasker-ctl template get orders fulfil 1.0.0 > order.yaml
  tasker-ctl template get orders fulfil 1.0.0 -o json | jq .configuration`,
	}, func(p *program, t apiv1.TemplateDetail) {
		for line := range strings.Lines(t.Source) {
			fmt.Fprintln(p.out, cleanLine(line))
		}
	}),
	plain(endpoint.RetireTemplate, help{
		use: "retire NAMESPACE NAME VERSION --reason TEXT", short: "Retire a template version",
		long: `Retire a version of a template, so that new tasks no longer use it. Tasks without a version get
the newest version that is not retired: retiring the newest rolls back. Existing tasks of the
version continue.`,
		example: `  tasker-ctl template retire orders fulfil 1.1.0 --reason "ships twice"`,
	}, printTemplateDone("Template retired!")),
	plain(endpoint.UnretireTemplate, help{
		use: "unretire NAMESPACE NAME VERSION --reason TEXT", short: "Restore a retired template version",
		example: `  tasker-ctl template unretire orders fulfil 1.1.0 --reason "the handler is repaired"`,
	}, printTemplateDone("Template restored!")),
	(*program).newRegisterCommand, (*program).newChangeTasksCommand, (*program).newValidateCommand, (*program).newSchemaCommand,
)

// printTemplateDone returns a function that prints a template after a change.
func printTemplateDone(done string) func(*program, apiv1.Template) {
	return func(p *program, t apiv1.Template) {
		p.printDone("%s", done)
		p.printFields("  ", field{"Template", formatTemplate(t)}, field{"Retired", formatRetirement(t)})
	}
}

func formatTemplate(t apiv1.Template) string { return t.Namespace + "/" + t.Name + " " + t.Version }

func (p *program) newRegisterCommand() *cobra.Command {
	return newRequestCommand(p, help{
		use: "register FILE", short: "Register a template",
		long: `Register a template in YAML, or in JSON if the file name ends in .json. "-" reads standard
input.

Registering the same template again changes nothing. A version that tasks use cannot change:
use a new version. Keys without effect are warnings.`,
		example: `  tasker-ctl template register order.yaml
  render order | tasker-ctl template register -`,
		switches: strictSwitch,
	}, func(ctx context.Context, api *client.Client, a arguments) (t apiv1.RegisteredTemplate, err error) {
		doc, err := p.readInput(a.text[0])
		if err != nil {
			return t, err
		}
		media := client.YAML
		if isJSON(a.text[0]) {
			media = client.JSON
		}
		if p.isSet("strict") {
			return api.RegisterTemplate(ctx, doc, media, client.Strict)
		}
		return api.RegisterTemplate(ctx, doc, media)
	}, func(t apiv1.RegisteredTemplate) {
		if t.Created {
			p.printDone("Template registered!")
		} else {
			p.printDone("Template is already registered")
		}
		p.printFields("  ",
			field{"Template", formatTemplate(t.Template)},
			field{"Steps", t.StepCount}, field{"Checksum", t.Checksum},
			field{"Retired", formatRetirement(t.Template)},
		)
		for _, w := range t.Warnings {
			p.warn("%s", clean(w.String()))
		}
	})
}

var strictSwitch = map[string]string{"strict": "reject keys without effect instead of warning"}

func isJSON(name string) bool { return strings.EqualFold(filepath.Ext(name), ".json") }

func formatRetirement(t apiv1.Template) string {
	if t.RetiredAt == nil {
		return ""
	}
	return formatTime(t.RetiredAt) + " by " + t.RetiredBy + ": " + t.RetiredReason
}

// validation is the result of template validate for one file.
type validation struct {
	File      string         `json:"file"`
	Valid     bool           `json:"valid"`
	Namespace string         `json:"namespace,omitempty"`
	Name      string         `json:"name,omitempty"`
	Version   string         `json:"version,omitempty"`
	StepCount int            `json:"step_count,omitempty"`
	Checksum  string         `json:"checksum,omitempty"`
	Message   string         `json:"message,omitempty"`
	Faults    []tasker.Fault `json:"faults,omitempty"`
	Warnings  []tasker.Fault `json:"warnings,omitempty"` // keys without effect
}

func (p *program) newValidateCommand() *cobra.Command {
	return p.newCommand(help{
		use: "validate FILE...", offline: true,
		short: "Validate template files offline",
		long: `Check template files, or directories of them, without a server. All faults are listed with
their lines. The exit code is 1 if there are any. Keys without effect are warnings.`,
		example: `  tasker-ctl template validate order.yaml
  tasker-ctl template validate templates/
  tasker-ctl template validate - < order.yaml`,
		switches: strictSwitch,
	}, func(_ context.Context, a arguments) error {
		all := []validation{}
		for _, name := range a.text {
			all = append(all, p.validate(name)...)
		}
		if p.isSet("strict") {
			rejectWarnings(all)
		}
		if err := p.show(all, func() { p.printValidations(all) }); err != nil {
			return err
		}
		if slices.ContainsFunc(all, func(v validation) bool { return !v.Valid }) {
			return cli.Exit(cli.ExitError)
		}
		return nil
	})
}

func (p *program) newSchemaCommand() *cobra.Command {
	return p.newCommand(help{
		use: "schema", offline: true,
		short: "Print the JSON Schema for templates",
		long: `Print the JSON Schema of template files, with which editors complete and check them. Refer to
it in the first line of a template:

  # yaml-language-server: $schema=./template.schema.json`,
		example: "  tasker-ctl template schema > template.schema.json",
	}, func(context.Context, arguments) error {
		_, err := p.out.Write(templatefile.Schema)
		return err
	})
}

// rejectWarnings makes warnings count as faults.
func rejectWarnings(list []validation) {
	for i, v := range list {
		if v.Valid && len(v.Warnings) > 0 {
			list[i] = validation{File: v.File, Faults: v.Warnings}
		}
	}
}

func (p *program) validate(name string) []validation {
	if info, err := os.Stat(name); err == nil && info.IsDir() {
		return validateDir(name)
	}
	doc, err := p.readInput(name)
	if err != nil {
		return []validation{{File: name, Message: err.Error()}}
	}
	parse := templatefile.Parse
	if isJSON(name) {
		parse = templatefile.ParseJSON
	}
	t, warnings, err := parse(doc)
	if err != nil {
		return []validation{newRejection(name, err)}
	}
	return []validation{newAcceptance(name, t, warnings)}
}

func validateDir(name string) []validation {
	files, faults, err := templatefile.LoadDir(name)
	if err = cmp.Or(err, templatefile.NewFaultsError(name, faults)); err != nil {
		return newFileRejection(name, err)
	}
	if len(files) == 0 {
		return []validation{{File: name, Message: "no templates found: no file ends in .yaml, .yml or .json"}}
	}
	var list []validation
	for _, f := range files {
		list = append(list, newAcceptance(f.Path, f.Template, f.Warnings))
	}
	return list
}

// newFileRejection converts the error for a directory to one result per file.
func newFileRejection(name string, err error) []validation {
	var known *tasker.Error
	if !errors.As(err, &known) {
		return []validation{{File: name, Message: err.Error()}}
	}
	faults, ok := known.Details.([]templatefile.FileFault)
	if !ok {
		return []validation{{File: name, Message: known.Message}}
	}
	var list []validation
	for _, f := range faults {
		if len(list) == 0 || list[len(list)-1].File != f.File {
			list = append(list, validation{File: f.File})
		}
		last := &list[len(list)-1]
		last.Faults = append(last.Faults, f.Fault)
	}
	return list
}

func newAcceptance(name string, t tasker.Template, warnings []tasker.Fault) validation {
	return validation{
		File: name, Valid: true, Namespace: t.Namespace, Name: t.Name, Version: t.Version,
		StepCount: len(t.Steps), Checksum: templatefile.Checksum(t), Warnings: warnings,
	}
}

func newRejection(name string, err error) validation {
	v := validation{File: name, Message: err.Error()}
	if known, ok := errors.AsType[*tasker.Error](err); ok {
		v.Message = known.Message
		if faults, ok := known.Details.([]tasker.Fault); ok {
			v.Faults, v.Message = faults, ""
		}
	}
	return v
}

func (p *program) printValidations(list []validation) {
	for _, v := range list {
		if v.Valid {
			p.printDone("%s: %s/%s %s, %s", clean(v.File), clean(v.Namespace), clean(v.Name), clean(v.Version), formatPlural(v.StepCount, "step"))
			for _, w := range v.Warnings {
				p.warn("%s: %s", clean(v.File), clean(w.String()))
			}
			continue
		}
		if v.Message != "" {
			fmt.Fprintf(p.out, "%s: %s\n", clean(v.File), clean(v.Message))
			continue
		}
		fmt.Fprintf(p.out, "%s has %s\n", clean(v.File), formatPlural(len(v.Faults), "error"))
		for _, f := range v.Faults {
			fmt.Fprintln(p.out, "  "+clean(f.String()))
		}
	}
}
