package live

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"tasker.example/tasker"
)

// An effect is the side effect of one run of a handler.
type effect struct {
	Task     string `json:"task"`
	Step     string `json:"step"`
	Attempt  int    `json:"attempt"`
	Run      string `json:"run"` // unique
	Language string `json:"language"`
	PID      int    `json:"pid"`
}

// effectFile is the file to which the workers append their effects.
type effectFile struct {
	path string
	size int64             // read so far
	list map[string]effect // by run
	runs map[[2]string]int // by task and step
	pids map[int]bool
}

func newEffectFile(path string) (*effectFile, error) {
	f := &effectFile{path: path, list: map[string]effect{}, runs: map[[2]string]int{}, pids: map[int]bool{}}
	return f, os.WriteFile(path, nil, 0o600)
}

// read reads the new lines.
func (f *effectFile) read() error {
	file, err := os.Open(f.path)
	if err != nil {
		return err
	}
	defer file.Close()
	doc, err := io.ReadAll(io.NewSectionReader(file, f.size, 1<<40))
	if err != nil {
		return err
	}
	whole := bytes.LastIndexByte(doc, '\n') + 1
	for line := range bytes.Lines(doc[:whole]) {
		var e effect
		if err := json.Unmarshal(line, &e); err != nil {
			return fmt.Errorf("read the effect %s: %w", line, err)
		}
		if _, known := f.list[e.Run]; known {
			return fmt.Errorf("the run %s of step %s has two effects", e.Run, e.Step)
		}
		f.list[e.Run] = e
		f.runs[[2]string{e.Task, e.Step}]++
		f.pids[e.PID] = true
	}
	f.size += int64(whole)
	return nil
}

// summary describes how often handlers ran.
func (f *effectFile) summary() string {
	languages, repeated := map[string]int{}, 0
	for _, e := range f.list {
		languages[e.Language]++
	}
	for _, n := range f.runs {
		if n > 1 {
			repeated++
		}
	}
	return fmt.Sprintf("handlers ran %d times for %d steps %v: %d steps ran more than once", len(f.list), len(f.runs), languages, repeated)
}

// order is the context of a task of the polyglot run. Languages tend to change such values: texts
// beyond ASCII, decimal numbers, and integers beyond 2^53.
type order struct {
	Item     string  `json:"item"`
	Quantity int     `json:"quantity"`
	Price    string  `json:"price"`
	Rate     float64 `json:"rate"`
	Serial   string  `json:"serial"`
	Count    int64   `json:"count"`
}

const beyondDouble = 1<<53 + 1

var items = []string{
	"Žluťoučký kůň 🐎", "e\u0301 is not é", "עִבְרִית and 日本語", "👩🏽‍🚀 family 👨‍👩‍👧", "\"quoted\" \\ \t\n\u2028 </script>", "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 \U0010fffd",
}

func orderOf(i int) order {
	return order{
		Item: items[i%len(items)], Quantity: i%9 + 1, Price: fmt.Sprintf("%d.%02d", i%50, (i*37+1)%100), Rate: 0.1 * float64(i%7+1),
		Serial: fmt.Sprint(beyondDouble + int64(i)), Count: beyondDouble + int64(i),
	}
}

// confirmation is the result of the last step.
type confirmation struct {
	Amount string `json:"amount"`
	Text   string `json:"text"`
	Serial string `json:"serial"`
	Count  int64  `json:"count"`
}

// confirmationOf returns the right result of the last step.
func confirmationOf(i int) confirmation {
	o := orderOf(i)
	cents := o.Quantity * ((i%50)*100 + (i*37+1)%100)
	return confirmation{
		Amount: fmt.Sprintf("%d.%02d", cents/100, cents%100), Text: fmt.Sprintf("%d × %s", o.Quantity, o.Item),
		Serial: fmt.Sprint(o.Count + 1), Count: o.Count + 1,
	}
}

// checkStep returns an error unless one attempt of the step completed it, with the result of a
// handler that ran in this attempt. The number is that of the task.
func checkStep(number int, step tasker.Step, history []tasker.Transition, effects map[string]effect) error {
	completed, err := completion(history)
	if err != nil {
		return err
	}
	var stored tasker.StepResult
	if err := json.Unmarshal(step.Results, &stored); err != nil {
		return fmt.Errorf("has an invalid result: %w", err)
	}
	var result struct {
		confirmation

		Attempt int    `json:"attempt"`
		Run     string `json:"run"`
	}
	if err := json.Unmarshal(stored.Result, &result); err != nil {
		return fmt.Errorf("has an invalid result: %w", err)
	}
	if completed.Attempt == nil || *completed.Attempt != result.Attempt {
		return fmt.Errorf("has the result of attempt %d, but completed in another: %s", result.Attempt, show(history))
	}
	e, ok := effects[result.Run]
	if !ok || e.Task != step.TaskUUID.String() || e.Step != step.Name || e.Attempt != result.Attempt {
		return fmt.Errorf("has the result of a run that is not its own: %s, which is %+v", stored.Result, e)
	}
	if step.Name == "confirm" && result.confirmation != confirmationOf(number) {
		return fmt.Errorf("has the result %+v instead of %+v", result.confirmation, confirmationOf(number))
	}
	return nil
}

func show(history []tasker.Transition) string {
	lines := make([]string, 0, len(history))
	for _, t := range history {
		attempt := 0
		if t.Attempt != nil {
			attempt = *t.Attempt
		}
		lines = append(lines, fmt.Sprintf("%s → %s (%s, attempt %d)", t.From, t.To, t.Event, attempt))
	}
	return strings.Join(lines, ", ")
}
