package ctl

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"tasker.example/tasker"
)

// maxDocument bounds what is read of a file: more than any server takes.
const maxDocument = 16 << 20

// named wants exactly the arguments that it names.
func named(names ...string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		switch {
		case len(args) < len(names):
			return usage{"missing " + strings.Join(names[len(args):], " and ") + ": " + c.UseLine()}
		case len(args) > len(names):
			return usage{"too many arguments, from " + quote(args[len(names)]) + " on: " + c.UseLine()}
		}
		return nil
	}
}

// readID reads the id of a thing.
func readID(what, text string) (tasker.ID, error) {
	id, err := uuid.Parse(text)
	if err != nil || len(text) != len(id.String()) {
		return tasker.ID{}, usage{what + " must be a UUID such as 0192f0c1-7a3e-7c4d-9b1e-2f5a6c7d8e9f, not " + quote(text)}
	}
	return id, nil
}

// readIDs reads the ids of a task and of one of its steps.
func readIDs(args []string) (task, step tasker.ID, err error) {
	if task, err = readID("TASK", args[0]); err == nil {
		step, err = readID("STEP", args[1])
	}
	return task, step, err
}

// need refuses an empty value of a flag.
func need(flag, value, why string) error {
	if strings.TrimSpace(value) == "" {
		return usage{"--" + flag + " is needed: " + why}
	}
	return nil
}

// document reads the JSON that a flag stands for: itself, @file or @- for
// standard input. Nothing stays nothing.
func (p *program) document(flag, value string) (json.RawMessage, error) {
	if value == "" {
		return nil, nil
	}
	doc, from := []byte(value), "--"+flag
	if name, isFile := strings.CutPrefix(value, "@"); isFile {
		var err error
		if doc, err = p.read(name); err != nil {
			return nil, fmt.Errorf("--%s: %w; give the path of a file, or @- for standard input", flag, err)
		}
		from += " " + value
	}
	var parsed json.RawMessage
	if err := json.Unmarshal(doc, &parsed); err != nil {
		return nil, usage{from + " is no JSON: " + err.Error() + "; put it into single quotes, as in --" + flag + ` '{"key": "value"}'`}
	}
	return parsed, nil
}

// object is document for what must be a JSON object.
func (p *program) object(flag, value string) (json.RawMessage, error) {
	doc, err := p.document(flag, value)
	if err != nil || doc == nil {
		return nil, err
	}
	if strings.TrimSpace(string(doc))[0] != '{' {
		return nil, usage{"--" + flag + ` must be a JSON object such as {"key": "value"}`}
	}
	return doc, nil
}

// read reads a file; - is standard input. What cannot be read was named wrongly.
func (p *program) read(name string) ([]byte, error) {
	in := p.in
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return nil, usage{err.Error()}
		}
		defer file.Close()
		in = file
	}
	doc, err := io.ReadAll(io.LimitReader(in, maxDocument+1))
	if err != nil {
		return nil, usage{err.Error()}
	}
	if len(doc) > maxDocument {
		return nil, tasker.Errorf(tasker.TooLarge, "%s has more than %d bytes", name, maxDocument)
	}
	return doc, nil
}

// actor returns who acts: as the flag says, else TASKER_ACTOR, else the user's
// name on this machine.
func (p *program) actor(flag, value string) (string, error) {
	if value != "" {
		return value, nil
	}
	if name := p.env["TASKER_ACTOR"]; name != "" {
		return name, nil
	}
	if u, err := user.Current(); err == nil && u.Username != "" {
		return u.Username, nil
	}
	return "", usage{"who acts is not known: say it with --" + flag + " or TASKER_ACTOR"}
}

// oneOf completes the values of a flag.
func oneOf[T ~string](c *cobra.Command, flag string, values []T) {
	words := make([]string, len(values))
	for i, v := range values {
		words[i] = string(v)
	}
	complete := cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)
	if err := c.RegisterFlagCompletionFunc(flag, complete); err != nil {
		panic(err) // the flag does not exist
	}
}

// choice refuses a value that is none of an enumeration; empty is no choice.
func choice[T ~string](flag, value string, values []T) (T, error) {
	if value == "" {
		return "", nil
	}
	if slices.Contains(values, T(value)) {
		return T(value), nil
	}
	return "", usage{"--" + flag + " must be one of " + choices(values) + ", not " + quote(value)}
}

func quote(s string) string { return strconv.Quote(s) }
