package fingerprint

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/pelletier/go-toml/v2"
)

//go:embed rules.toml
var rulesFile []byte

// A Rule is an entry of rules.toml. It keeps or masks a shape in a context of words.
type Rule struct {
	ID       string     `toml:"id"`
	Action   string     `toml:"action"` // keep or mask
	Shapes   []string   `toml:"shapes"`
	Label    string     `toml:"label"`    // placeholder of a masking rule
	Before   []string   `toml:"before"`   // word sets, one of which must precede the shape
	Near     int        `toml:"near"`     // how many words back Before applies; default 1
	Also     []string   `toml:"also"`     // word sets, one of which must be among the preceding words
	Except   []string   `toml:"except"`   // word sets, none of which may directly precede
	After    []string   `toml:"after"`    // word sets, one of which must follow
	Unless   []string   `toml:"unless"`   // word sets, none of which may follow
	Joined   string     `toml:"joined"`   // characters, one of which must directly precede
	Why      string     `toml:"why"`      // purpose of the rule
	Examples [][]string `toml:"examples"` // pairs of a message and its pattern
}

// document is the content of rules.toml.
type document struct {
	Words map[string]string `toml:"words"`
	Rules []Rule            `toml:"rule"`
}

// wordSet is a set of word sets in rules.toml, as a bit mask.
type wordSet uint64

// rule is a compiled [Rule].
type rule struct {
	id, label            string
	keep                 bool
	near                 int
	before, also, except wordSet
	after, unless        wordSet
	joined               string
	index                int
}

// ruleSet contains all compiled rules.
type ruleSet struct {
	rules   []*rule
	byShape [shapes][]*rule
	words   map[string]wordSet
	sets    map[string]wordSet // by the name of the set

	filler, told, weak, plain, months, days, zones, currency, units, sizes, legal, named, glued, tuple, wordy, entity, value,
	refused, source, files, keptName, noiseKey, urlWord, http, ports, hostWord, numbered, standards, owner, common, sqlstates,
	counted, foreign, vendored, listening, prefixes, portWord, portNamed wordSet
}

var current = sync.OnceValue(func() *ruleSet {
	doc, err := parse(rulesFile)
	if err == nil {
		var set *ruleSet
		if set, err = compile(doc); err == nil {
			return set
		}
	}
	panic("fingerprint: rules.toml: " + err.Error()) // a test parses the file
})

// Rules returns the rules in order.
func Rules() []Rule {
	doc, err := parse(rulesFile)
	if err != nil {
		panic("fingerprint: rules.toml: " + err.Error())
	}
	return doc.Rules
}

// parse decodes rules.toml. It returns an error for unknown keys.
func parse(text []byte) (document, error) {
	var doc document
	d := toml.NewDecoder(bytes.NewReader(text)).DisallowUnknownFields()
	if err := d.Decode(&doc); err != nil {
		if strict, ok := errors.AsType[*toml.StrictMissingError](err); ok {
			return doc, fmt.Errorf("unknown keys:\n%s", strict.String())
		}
		return doc, err
	}
	return doc, nil
}

// compile validates the rules and converts them to a ruleSet.
func compile(doc document) (*ruleSet, error) {
	set := &ruleSet{words: map[string]wordSet{}, sets: map[string]wordSet{}}
	if err := set.addWords(doc.Words); err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	for _, r := range doc.Rules {
		if seen[r.ID] || r.ID == "" {
			return nil, fmt.Errorf("rule %q: must have a unique id", r.ID)
		}
		seen[r.ID] = true
		if err := set.add(r); err != nil {
			return nil, fmt.Errorf("rule %q: %w", r.ID, err)
		}
	}
	return set, nil
}

// addWords assigns a bit to each word set.
func (set *ruleSet) addWords(sets map[string]string) error {
	names := slices.Sorted(maps.Keys(sets))
	if len(names) > 64 {
		return fmt.Errorf("too many word sets: got %d, the limit is 64", len(names))
	}
	for i, name := range names {
		bit := wordSet(1) << i
		set.sets[name] = bit
		for word := range strings.FieldsSeq(sets[name]) {
			if len(word) > maxWord || word != strings.ToLower(word) {
				return fmt.Errorf("word %q of set %s: must be lower case and at most %d "+
					"bytes long", word, name, maxWord)
			}
			set.words[word] |= bit
		}
	}
	for name, bit := range map[string]*wordSet{
		"filler": &set.filler, "told": &set.told, "plain": &set.plain, "month": &set.months, "weekday": &set.days, "zone": &set.zones,
		"currency": &set.currency, "time_unit": &set.units, "size_unit": &set.sizes, "legal_form": &set.legal, "name": &set.named,
		"code_prefix": &set.glued, "tuple": &set.tuple, "digits_in_name": &set.wordy, "entity": &set.entity, "value": &set.value, "refused": &set.refused,
		"source_file": &set.source, "data_file": &set.files, "kept_name": &set.keptName, "told_weak": &set.weak, "noise_key": &set.noiseKey,
		"url_word": &set.urlWord, "http": &set.http, "known_port": &set.ports, "host_word": &set.hostWord,
		"numbered": &set.numbered, "standard": &set.standards, "owner": &set.owner, "common": &set.common, "counted": &set.counted, "known_sqlstate": &set.sqlstates,
		"foreign": &set.foreign, "vendored": &set.vendored, "listening": &set.listening, "port": &set.portWord, "port_elsewhere": &set.portNamed, "id_prefix": &set.prefixes,
	} {
		if *bit = set.sets[name]; *bit == 0 {
			return fmt.Errorf("missing word set %q", name)
		}
	}
	return nil
}

// add compiles a rule and adds it to the set.
func (set *ruleSet) add(r Rule) error {
	c := &rule{id: r.ID, label: r.Label, keep: r.Action == "keep", near: r.Near, joined: r.Joined, index: len(set.rules)}
	switch {
	case r.Action != "keep" && r.Action != "mask":
		return fmt.Errorf("invalid action %q: must be keep or mask", r.Action)
	case c.keep != (r.Label == ""):
		return fmt.Errorf("invalid label %q: must be set if the action is mask, and empty if it is keep", r.Label)
	case !c.keep && !labels[r.Label]:
		return fmt.Errorf("invalid label %q: must be a placeholder of the scanner", r.Label)
	case r.Near < 0 || r.Near > window:
		return fmt.Errorf("invalid near %d: must be from 1 to %d", r.Near, window)
	case len(r.Shapes) == 0:
		return errors.New("missing shapes")
	case r.Why == "":
		return errors.New("missing why")
	}
	c.near = max(c.near, 1)
	for _, list := range []struct {
		names []string
		bits  *wordSet
	}{{r.Before, &c.before}, {r.Also, &c.also}, {r.Except, &c.except}, {r.After, &c.after}, {r.Unless, &c.unless}} {
		for _, name := range list.names {
			bit, ok := set.sets[name]
			if !ok {
				return fmt.Errorf("unknown word set %q", name)
			}
			*list.bits |= bit
		}
	}
	for _, name := range r.Shapes {
		i := slices.Index(shapeNames[:], name)
		if i < 0 {
			return fmt.Errorf("unknown shape %q", name)
		}
		set.byShape[i] = append(set.byShape[i], c)
	}
	set.rules = append(set.rules, c)
	return nil
}
