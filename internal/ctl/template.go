package ctl

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/client"
	"tasker.example/tasker/internal/templatefile"
)

func (p *program) templateCommand() *cobra.Command {
	c := group(&cobra.Command{
		Use:   "template",
		Short: "Check, register and show templates",
		Example: `  tasker-ctl template validate order.yaml
  tasker-ctl template register order.yaml`,
	})
	c.AddCommand(p.registerCommand(), p.templatesCommand(), p.templateGetCommand(), p.validateCommand())
	return c
}

func (p *program) registerCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "register FILE",
		Short: "Register a template; - reads standard input",
		Long: `Register a template written in YAML, or in JSON when the file ends in .json.

The same template once more changes nothing. A version that tasks use never
changes: give the template a new version.`,
		Example: `  tasker-ctl template register order.yaml
  render order | tasker-ctl template register -`,
		Args: named("FILE"),
		RunE: func(c *cobra.Command, args []string) error {
			doc, err := p.read(args[0])
			if err != nil {
				return err
			}
			media := client.YAML
			if isJSON(args[0]) {
				media = client.JSON
			}
			api, err := p.api()
			if err != nil {
				return err
			}
			t, err := api.RegisterTemplate(c.Context(), doc, media)
			if err != nil {
				return err
			}
			return p.show(t, func() {
				if t.Created {
					p.done("Template registered!")
				} else {
					p.done("Template was registered already")
				}
				p.fields("  ",
					field{"Template", t.Namespace + "/" + t.Name + " " + t.Version},
					field{"Steps", strconv.Itoa(t.StepCount)}, field{"Checksum", t.Checksum},
				)
			})
		},
	}
}

func isJSON(name string) bool { return strings.EqualFold(filepath.Ext(name), ".json") }

func (p *program) templatesCommand() *cobra.Command {
	var namespace string
	var page client.Page
	c := &cobra.Command{
		Use:     "list",
		Short:   "List templates",
		Example: "  tasker-ctl template list --namespace orders",
		Args:    named(),
		RunE: func(c *cobra.Command, _ []string) error {
			api, err := p.api()
			if err != nil {
				return err
			}
			list, err := api.Templates(c.Context(), namespace, page)
			if err != nil {
				return err
			}
			return p.show(list, func() { p.listTemplates(list) })
		},
	}
	c.Flags().StringVarP(&namespace, "namespace", "n", "", "only those of this namespace")
	pageFlags(c, &page, 50)
	return c
}

func (p *program) listTemplates(list apiv1.TemplateList) {
	defer p.more(list.Pagination)
	if len(list.Templates) == 0 {
		fmt.Fprintln(p.err, "No templates.")
		return
	}
	var rows [][]string
	for _, t := range list.Templates {
		rows = append(rows, []string{t.Namespace, t.Name, t.Version, strconv.Itoa(t.StepCount), at(&t.CreatedAt), t.Description})
	}
	p.table([]string{"namespace", "name", "version", "steps", "registered", "description"}, rows)
}

func (p *program) templateGetCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "get NAMESPACE NAME VERSION",
		Short: "Print a template as it was written",
		Example: `  tasker-ctl template get orders fulfil 1.0.0 > order.yaml
  tasker-ctl template get orders fulfil 1.0.0 -o json | jq .configuration`,
		Args: named("NAMESPACE", "NAME", "VERSION"),
		RunE: func(c *cobra.Command, args []string) error {
			api, err := p.api()
			if err != nil {
				return err
			}
			t, err := api.Template(c.Context(), args[0], args[1], args[2])
			if err != nil {
				return err
			}
			return p.show(t, func() {
				for line := range strings.Lines(t.Source) {
					fmt.Fprintln(p.out, cleanLine(line))
				}
			})
		},
	}
}

// A validation is what template validate says of one file.
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
}

func (p *program) validateCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "validate FILE...",
		Short: "Check template files without a server",
		Long: `Check template files, or directories of them, without a server. Every fault is
listed with its line. The exit code is 1 when there is any.`,
		Example: `  tasker-ctl template validate order.yaml
  tasker-ctl template validate templates/
  tasker-ctl template validate - < order.yaml`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usage{"missing FILE: " + c.UseLine()}
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			list := []validation{}
			for _, name := range args {
				list = append(list, p.validate(name)...)
			}
			code := exitOK
			for _, v := range list {
				if !v.Valid {
					code = exitError
				}
			}
			if err := p.show(list, func() { p.listValidations(list) }); err != nil {
				return err
			}
			if code != exitOK {
				return silent(code)
			}
			return nil
		},
	}
}

// validate checks a file or a directory.
func (p *program) validate(name string) []validation {
	if info, err := os.Stat(name); err == nil && info.IsDir() {
		return validateDir(name)
	}
	doc, err := p.read(name)
	if err != nil {
		return []validation{{File: name, Message: err.Error()}}
	}
	parse := templatefile.Parse
	if isJSON(name) {
		parse = templatefile.ParseJSON
	}
	t, _, err := parse(doc)
	if err != nil {
		return []validation{refused(name, err)}
	}
	return []validation{accepted(name, t)}
}

func validateDir(name string) []validation {
	files, err := templatefile.LoadDir(name)
	if err != nil {
		return refusedFiles(name, err)
	}
	if len(files) == 0 {
		return []validation{{File: name, Message: "no templates here: nothing ends in .yaml, .yml or .json"}}
	}
	var list []validation
	for _, f := range files {
		list = append(list, accepted(f.Path, f.Template))
	}
	return list
}

// refusedFiles spells what is wrong with a directory, file by file.
func refusedFiles(name string, err error) []validation {
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

func accepted(name string, t tasker.Template) validation {
	return validation{
		File: name, Valid: true, Namespace: t.Namespace, Name: t.Name, Version: t.Version,
		StepCount: len(t.Steps), Checksum: templatefile.Checksum(t),
	}
}

func refused(name string, err error) validation {
	v := validation{File: name, Message: err.Error()}
	if known, ok := errors.AsType[*tasker.Error](err); ok {
		v.Message = known.Message
		if faults, ok := known.Details.([]tasker.Fault); ok {
			v.Faults, v.Message = faults, ""
		}
	}
	return v
}

func (p *program) listValidations(list []validation) {
	for _, v := range list {
		if v.Valid {
			p.done("%s: %s/%s %s, %s", clean(v.File), clean(v.Namespace), clean(v.Name), clean(v.Version), plural(v.StepCount, "step"))
			continue
		}
		if v.Message != "" {
			fmt.Fprintf(p.out, "%s: %s\n", clean(v.File), clean(v.Message))
			continue
		}
		fmt.Fprintf(p.out, "%s has %s\n", clean(v.File), plural(len(v.Faults), "fault"))
		for _, f := range v.Faults {
			fmt.Fprintln(p.out, "  "+clean(f.String()))
		}
	}
}
