package ctl

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/user"
	"strings"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/cli"
)

// maxDocument bounds what is read of a file: more than any server takes.
const maxDocument = 16 << 20

// need refuses an empty value of a flag.
func need(flag, value, why string) error {
	if strings.TrimSpace(value) == "" {
		return cli.Usagef("--%s is needed: %s", flag, why)
	}
	return nil
}

// document reads the JSON in the value of a flag: itself, @file, or @- for
// standard input. No value is no document.
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
		return nil, cli.Usagef(`%s is not valid JSON: %v; put it into single quotes, as in --%s '{"key": "value"}'`, from, err, flag)
	}
	return parsed, nil
}

// object is document for a flag that takes a JSON object.
func (p *program) object(flag, value string) (json.RawMessage, error) {
	doc, err := p.document(flag, value)
	if err != nil || doc == nil {
		return nil, err
	}
	if strings.TrimSpace(string(doc))[0] != '{' {
		return nil, cli.Usagef(`--%s must be a JSON object such as {"key": "value"}`, flag)
	}
	return doc, nil
}

// read reads a file; - is standard input. A file that cannot be read is an error
// of the command line, which names it.
func (p *program) read(name string) ([]byte, error) {
	in := p.in
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return nil, cli.UsageError{Text: err.Error()}
		}
		defer file.Close()
		in = file
	}
	doc, err := io.ReadAll(io.LimitReader(in, maxDocument+1))
	if err != nil {
		return nil, cli.UsageError{Text: err.Error()}
	}
	if len(doc) > maxDocument {
		return nil, tasker.Errorf(tasker.TooLarge, "%s has more than %d bytes", name, maxDocument)
	}
	return doc, nil
}

// actor returns the person who acts: the value of the flag, else TASKER_ACTOR,
// else the user's name on this machine.
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
	return "", cli.Usagef("the person who acts is not known: give --%s or set TASKER_ACTOR", flag)
}
