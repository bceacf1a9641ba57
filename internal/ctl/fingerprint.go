package ctl

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"tasker.example/tasker/internal/cli"
	"tasker.example/tasker/internal/fingerprint"
	"tasker.example/tasker/internal/payload"
)

// maxFailureLine bounds a line of JSON that describes a failure.
const maxFailureLine = 1 << 20

// A failureLine is a line that case fingerprint reads. Other keys are left alone.
type failureLine struct {
	Type     string  `json:"type"`
	Message  *string `json:"message"`
	Language string  `json:"language"`
}

// A causeLine is a line that case fingerprint prints.
type causeLine struct {
	Fingerprint string     `json:"fingerprint"`
	Pattern     string     `json:"pattern"`
	Rules       []string   `json:"rules"`
	Masked      []maskLine `json:"masked,omitzero"` // nil unless it is asked for
}

type maskLine struct {
	Label string `json:"label"`
	Text  string `json:"text"`
	Rule  string `json:"rule"`
}

func (p *program) fingerprintCommand() *cobra.Command {
	var explain bool
	c := p.command(help{
		use:   "fingerprint [FILE]...",
		short: "Print the fingerprints of failures",
		long: `Print the fingerprint of each failure: equal ones have one cause.

Reads a failure on each line, as JSON with its message and, if they are known, its type
and its language (go, java, python, ...): from the files, or from standard input. Prints
a line of JSON for each: the fingerprint, the pattern that the message has, and the ids
of the rules that decided. It needs no server. docs/concepts/fingerprints.md lists the rules.

In a pattern, <id>, <n>, <val> and the like stand for what differs from task to task;
--explain adds what stood there.`,
		example: `  echo '{"type": "*url.Error", "message": "charge order 4711: EOF"}' | tasker-ctl case fingerprint
  tasker-ctl case fingerprint errors.jsonl | jq -r .fingerprint | sort | uniq -c | sort -rn
  tasker-ctl case fingerprint --explain errors.jsonl | jq '.masked'`,
	}, func(ctx context.Context, a arguments) error {
		if len(a.text) == 0 {
			return p.fingerprints(ctx, "-", explain)
		}
		for _, name := range a.text {
			if err := p.fingerprints(ctx, name, explain); err != nil {
				return err
			}
		}
		return nil
	})
	c.Flags().BoolVar(&explain, "explain", false, "add what the placeholders of the pattern stand for, and by which rule")
	return c
}

// fingerprints prints the fingerprints of the failures in a file; - is standard input. What
// comes before a line that is not valid is printed.
func (p *program) fingerprints(ctx context.Context, name string, explain bool) error {
	in := p.in
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return cli.UsageError{Text: err.Error()}
		}
		defer file.Close()
		in = file
	}
	lines, out := bufio.NewReaderSize(in, 1<<16), bufio.NewWriter(p.out)
	for number := 1; ctx.Err() == nil; number++ {
		line, err := readLine(lines)
		if number == 1 {
			line = payload.TrimBOM(line)
		}
		if err == nil {
			err = printCause(out, line, explain)
		}
		if err == nil && lines.Buffered() > 0 {
			continue // more is there: one write for many lines
		}
		if flushed := out.Flush(); flushed != nil {
			return fmt.Errorf("print the fingerprints: %w", flushed)
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return cli.Usagef("%s:%d: %v", name, number, err)
		}
	}
	return ctx.Err()
}

// readLine reads a line, which may be the last one and have no end.
func readLine(lines *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := lines.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case len(line) > maxFailureLine:
			return nil, fmt.Errorf("the line has more than %d bytes", maxFailureLine)
		case err == nil, errors.Is(err, io.EOF) && len(line) > 0:
			return line, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		}
	}
}

// printCause prints the fingerprint of the failure in a line.
func printCause(out *bufio.Writer, line []byte, explain bool) error {
	var f failureLine
	if err := json.Unmarshal(line, &f); err != nil {
		return fmt.Errorf(`not a failure as JSON: %w; a line looks like {"type": "T", "message": "M", "language": "go"}`, err)
	}
	if f.Message == nil {
		return errors.New(`"message" is missing: it is the text of the error`)
	}
	cause := fingerprint.Normalise(fingerprint.Failure{Type: f.Type, Message: *f.Message, Language: f.Language})
	answer := causeLine{Fingerprint: cause.Key, Pattern: cause.Pattern, Rules: append([]string{}, cause.Rules...)}
	if explain {
		answer.Masked = []maskLine{}
		for _, m := range cause.Masked {
			answer.Masked = append(answer.Masked, maskLine(m))
		}
	}
	var doc bytes.Buffer
	enc := json.NewEncoder(&doc)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(answer); err != nil {
		return err
	}
	_, err := out.WriteString(strings.TrimRight(escape(doc.String()), "\n") + "\n")
	return err
}
