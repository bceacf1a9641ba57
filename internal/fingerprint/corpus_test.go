package fingerprint

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A labelled is a line of a corpus.
type labelled struct {
	Cause    string `json:"cause"`
	Language string `json:"language"`
	Type     string `json:"type"`
	Message  string `json:"message"`
	Source   string `json:"source"`
}

// A score says how well texts are grouped.
type score struct {
	texts, causes, groups int
	precision, recall     float64 // of pairs
	bPrecision, bRecall   float64 // B-cubed: the mean over texts
}

func (s score) String() string {
	return fmt.Sprintf("%d texts, %d causes, %d groups: pairs precision %.4f recall %.4f, B-cubed precision %.4f recall %.4f",
		s.texts, s.causes, s.groups, s.precision, s.recall, s.bPrecision, s.bRecall)
}

func readCorpus(t testing.TB, name string) []labelled {
	t.Helper()
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var all []labelled
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var l labelled
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			t.Fatalf("%s:%d: %v", name, len(all)+1, err)
		}
		all = append(all, l)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

// measure compares groups with causes.
func measure(all []labelled, group func(labelled) string) score {
	type both struct{ group, cause string }
	groups, causes, cells := map[string]int{}, map[string]int{}, map[both]int{}
	keys := make([]string, len(all))
	for i, l := range all {
		keys[i] = group(l)
		groups[keys[i]]++
		causes[l.Cause]++
		cells[both{keys[i], l.Cause}]++
	}
	pairs := func(n int) float64 { return float64(n) * float64(n-1) / 2 }
	var together, same, right float64
	for _, n := range groups {
		together += pairs(n)
	}
	for _, n := range causes {
		same += pairs(n)
	}
	for _, n := range cells {
		right += pairs(n)
	}
	s := score{texts: len(all), causes: len(causes), groups: len(groups), precision: right / together, recall: right / same}
	for i, l := range all {
		n := float64(cells[both{keys[i], l.Cause}])
		s.bPrecision += n / float64(groups[keys[i]]) / float64(len(all))
		s.bRecall += n / float64(causes[l.Cause]) / float64(len(all))
	}
	return s
}

// errorPattern is the SQL function tasker.error_pattern, which cases are made with.
func errorPattern(message string) string {
	message = string([]rune(message)[:min(len([]rune(message)), 500)])
	pattern := ids.ReplaceAllString(message, "#")
	return string([]rune(pattern)[:min(len([]rune(pattern)), 200)])
}

var ids = regexp.MustCompile(`[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}|\b0x[0-9a-fA-F]+\b|\b(?:[a-fA-F]{0,6}[0-9][0-9a-fA-F]{6,}|[a-fA-F]{7,}[0-9][0-9a-fA-F]*)\b|[0-9]+(?:[.,:][0-9]+)*`)

func TestCorpus(t *testing.T) {
	all := readCorpus(t, "testdata/corpus.jsonl")
	byCause := func(l labelled) string {
		return Normalize(Failure{Type: l.Type, Message: l.Message, Language: l.Language}).Key
	}
	got := measure(all, byCause)
	t.Logf("corpus.jsonl, today's pattern: %v", measure(all, func(l labelled) string { return errorPattern(l.Message) }))
	t.Logf("corpus.jsonl: %v", got)
	listFaults(t, all, byCause)
	if got.precision < 0.99 || got.recall < 0.97 {
		t.Errorf("precision %.4f, recall %.4f: must be at least 0.99 and 0.97", got.precision, got.recall)
	}
	if _, err := os.Stat("testdata/held_out.jsonl"); err != nil {
		t.Skip("held_out.jsonl is not there")
	}
	held := readCorpus(t, "testdata/held_out.jsonl")
	got = measure(held, byCause)
	t.Logf("held_out.jsonl, today's pattern: %v", measure(held, func(l labelled) string { return errorPattern(l.Message) }))
	t.Logf("held_out.jsonl: %v", got)
	if got.precision < 0.97 || got.recall < 0.95 {
		t.Errorf("held out: precision %.4f, recall %.4f: must be at least 0.97 and 0.95", got.precision, got.recall)
	}
}

// listFaults logs the causes that have one group, and those that have several.
func listFaults(t *testing.T, all []labelled, group func(labelled) string) {
	t.Helper()
	groups, causes := map[string]map[string]bool{}, map[string]map[string]bool{}
	pattern := map[string]string{}
	add := func(m map[string]map[string]bool, a, b string) {
		if m[a] == nil {
			m[a] = map[string]bool{}
		}
		m[a][b] = true
	}
	for _, l := range all {
		key := group(l)
		pattern[key] = l.Type + ": " + Normalize(Failure{Message: l.Message}).Pattern
		add(groups, key, l.Cause)
		add(causes, l.Cause, key)
	}
	for key, list := range groups {
		if len(list) > 1 {
			t.Logf("merged: %s\n\t%s", strings.Join(sorted(list), ", "), pattern[key])
		}
	}
	for _, cause := range sorted(causes) {
		if list := causes[cause]; len(list) > 1 {
			var lines []string
			for key := range list {
				lines = append(lines, pattern[key])
			}
			slices.SortFunc(lines, cmp.Compare)
			t.Logf("split: %s\n\t%s", cause, strings.Join(lines, "\n\t"))
		}
	}
}

func sorted[V any](m map[string]V) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
