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

// maxFailureLine is the maximum size of an input line in bytes.
const maxFailureLine = 1 << 20

// failureLine is an input line. Unknown keys are ignored.
type failureLine struct {
	Type     string  `json:"type"`
	Message  *string `json:"message"`
	Language string  `json:"language"`
}

// causeLine is an output line.
type causeLine struct {
	Fingerprint string     `json:"fingerprint"`
	Pattern     string     `json:"pattern"`
	Rules       []string   `json:"rules"`
	Masked      []maskLine `json:"masked,omitzero"` // nil without --explain
}

type maskLine struct {
	Label string `json:"label"`
	Text  string `json:"text"`
	Rule  string `json:"rule"`
}

func (p *program) newFingerprintCommand() *cobra.Command {
	var explain bool
	c := p.newCommand(help{
		use: "fingerprint [FILE]...", offline: true,
		short: "Print the fingerprints of failures",
		long: `Print the fingerprint of each failure. Failures with the same fingerprint have the same cause.

Each input line is a failure in JSON, with its message and optionally its type and language
(go, java, python, ...). Input comes from the files, or from standard input. Each output line
is JSON with the fingerprint, the pattern of the message and the ids of the rules that
matched. No server is needed. docs/concepts/fingerprints.md lists the rules.

In a pattern, placeholders such as <id>, <n> and <val> replace the parts that vary between
tasks; --explain adds the replaced text.`,
		example: `  echo '{"type": "*url.Error", "message": "charge order 4711: EOF"}' | tasker-ctl case fingerprint
  tasker-ctl case fingerprint errors.jsonl | jq -r .fingerprint | sort | uniq -c | sort -rn
  tasker-ctl case fingerprint --explain errors.jsonl | jq '.masked'`,
	}, func(ctx context.Context, a arguments) error {
		if len(a.text) == 0 {
			return p.printFingerprints(ctx, "-", explain)
		}
		for _, name := range a.text {
			if err := p.printFingerprints(ctx, name, explain); err != nil {
				return err
			}
		}
		return nil
	})
	c.Flags().BoolVar(&explain, "explain", false, "add the text and the rule of each placeholder")
	return c
}

// printFingerprints prints the fingerprints of the failures in a file, or in standard input if name is
// "-". It stops at an invalid line but prints the fingerprints of the lines before it.
func (p *program) printFingerprints(ctx context.Context, name string, explain bool) error {
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
			continue // write many lines at once
		}
		if flushed := out.Flush(); flushed != nil {
			return fmt.Errorf("print fingerprints: %w", flushed)
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

// readLine reads a line of at most maxFailureLine bytes. The last line may lack a newline.
func readLine(lines *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := lines.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case len(line) > maxFailureLine:
			return nil, fmt.Errorf("line too long: the limit is %d bytes", maxFailureLine)
		case err == nil, errors.Is(err, io.EOF) && len(line) > 0:
			return line, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		}
	}
}

func printCause(out *bufio.Writer, line []byte, explain bool) error {
	var f failureLine
	if err := json.Unmarshal(line, &f); err != nil {
		return fmt.Errorf(`invalid failure: %w; expected a line such as {"type": "T", "message": "M", "language": "go"}`, err)
	}
	if f.Message == nil {
		return errors.New(`missing "message": set the text of the error`)
	}
	cause := fingerprint.Normalize(fingerprint.Failure{Type: f.Type, Message: *f.Message, Language: f.Language})
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
