package config

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"tasker.example/tasker/internal/suggest"
)

// Key describes a configuration key for the documentation.
type Key struct {
	Name    string // in the file, such as staleness_detection.batch_size
	Env     string // in the environment, such as TASKER_STALENESS_DETECTION_BATCH_SIZE
	Default string // as in the environment; empty if there is none
	Values  string // allowed values: "1 to 600", "text or json", "true or false"; empty for any text
	Meaning string // description in full sentences
}

// Keys returns all keys, in the order of the documentation.
func Keys() []Key {
	c := Default()
	c.Emission.Receivers = map[string]*Receiver{"NAME": newReceiver()}
	var keys []Key
	for _, f := range c.listFields() {
		keys = append(keys, Key{Name: f.name, Env: f.envName(), Default: f.format(), Values: f.describeValues(),
			Meaning: f.tag.Get("doc")})
	}
	return keys
}

// Set sets a key to the value of an environment variable or a flag, which it parses.
func (c *Config) Set(name, text string) error {
	var names []string
	c.addReceiver(name)
	for _, f := range c.listFields() {
		if f.name == name {
			if wrong := f.parse(text); wrong != "" {
				return newFault(name, wrong)
			}
			return nil
		}
		names = append(names, f.name)
	}
	return newFault(name, "unknown key"+suggest.Ending(name, names))
}

// field is a key of a configuration.
type field struct {
	name  string
	tag   reflect.StructTag
	value reflect.Value
}

// listFields returns the keys of c. Their values can be set.
func (c *Config) listFields() []field { return collectFields("", reflect.ValueOf(c).Elem()) }

func collectFields(section string, v reflect.Value) []field {
	var list []field
	for i := range v.NumField() {
		tag := v.Type().Field(i).Tag
		name := section + tag.Get("toml")
		if v.Field(i).Kind() == reflect.Struct {
			list = append(list, collectFields(name+".", v.Field(i))...)
			continue
		}
		if all, ok := reflect.TypeAssert[map[string]*Receiver](v.Field(i)); ok {
			for _, one := range slices.Sorted(maps.Keys(all)) {
				list = append(list, collectFields(name+"."+one+".", reflect.ValueOf(all[one]).Elem())...)
			}
			continue
		}
		list = append(list, field{name: name, tag: tag, value: v.Field(i)})
	}
	return list
}

const prefix = "TASKER_"

func (f field) envName() string { return toEnvName(f.name) }

func toEnvName(key string) string { return prefix + strings.ToUpper(strings.ReplaceAll(key, ".", "_")) }

// parse parses and sets a value. It describes what is wrong with the value, or returns "".
func (f field) parse(text string) string {
	switch f.value.Kind() {
	case reflect.Int:
		n, err := strconv.Atoi(text)
		if err != nil {
			return fmt.Sprintf("must be %s, not %q", f.describeKind(), text)
		}
		f.value.SetInt(int64(n))
	case reflect.Bool:
		if text != "true" && text != "false" {
			return fmt.Sprintf("must be %s, not %q", f.describeKind(), text)
		}
		f.value.SetBool(text == "true")
	default:
		f.value.SetString(text)
	}
	return ""
}

// format formats the value so that set can parse it.
func (f field) format() string { return fmt.Sprint(f.value.Interface()) }

func (f field) describeKind() string {
	switch f.value.Kind() {
	case reflect.Int:
		return "a whole number"
	case reflect.Bool:
		return "true or false"
	default:
		return "text"
	}
}

// describeValues describes the allowed values, for the documentation.
func (f field) describeValues() string {
	if low, high, ok := f.limits(); ok {
		return fmt.Sprintf("%d to %d", low, high)
	}
	if words := f.allowedWords(); len(words) > 0 {
		return formatList(words)
	}
	if f.value.Kind() == reflect.Bool {
		return f.describeKind()
	}
	return ""
}

// limits parses the tag range:"low..high".
func (f field) limits() (low, high int, ok bool) {
	_, err := fmt.Sscanf(f.tag.Get("range"), "%d..%d", &low, &high)
	return low, high, err == nil
}

// allowedWords parses the tag oneof:"a b c".
func (f field) allowedWords() []string { return strings.Fields(f.tag.Get("oneof")) }

// formatList formats words as "a, b or c".
func formatList(words []string) string {
	last := len(words) - 1
	if last <= 0 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:last], ", ") + " or " + words[last]
}
