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
	for _, f := range c.fields() {
		keys = append(keys, Key{Name: f.name, Env: f.env(), Default: f.text(), Values: f.values(), Meaning: f.tag.Get("doc")})
	}
	return keys
}

// Set sets a key to the value of an environment variable or a flag, which it parses.
func (c *Config) Set(name, text string) error {
	var names []string
	c.makeReceiver(name)
	for _, f := range c.fields() {
		if f.name == name {
			if wrong := f.set(text); wrong != "" {
				return fault(name, wrong)
			}
			return nil
		}
		names = append(names, f.name)
	}
	return fault(name, "unknown key"+suggest.Ending(name, names))
}

// field is a key of a configuration.
type field struct {
	name  string
	tag   reflect.StructTag
	value reflect.Value
}

// fields returns the keys of c. Their values can be set.
func (c *Config) fields() []field { return fieldsOf("", reflect.ValueOf(c).Elem()) }

func fieldsOf(section string, v reflect.Value) []field {
	var list []field
	for i := range v.NumField() {
		tag := v.Type().Field(i).Tag
		name := section + tag.Get("toml")
		if v.Field(i).Kind() == reflect.Struct {
			list = append(list, fieldsOf(name+".", v.Field(i))...)
			continue
		}
		if all, ok := reflect.TypeAssert[map[string]*Receiver](v.Field(i)); ok {
			for _, one := range slices.Sorted(maps.Keys(all)) {
				list = append(list, fieldsOf(name+"."+one+".", reflect.ValueOf(all[one]).Elem())...)
			}
			continue
		}
		list = append(list, field{name: name, tag: tag, value: v.Field(i)})
	}
	return list
}

const prefix = "TASKER_"

func (f field) env() string { return envName(f.name) }

func envName(key string) string { return prefix + strings.ToUpper(strings.ReplaceAll(key, ".", "_")) }

// set parses and sets a value. It describes what is wrong with the value, or returns "".
func (f field) set(text string) string {
	switch f.value.Kind() {
	case reflect.Int:
		n, err := strconv.Atoi(text)
		if err != nil {
			return fmt.Sprintf("must be %s, not %q", f.kind(), text)
		}
		f.value.SetInt(int64(n))
	case reflect.Bool:
		if text != "true" && text != "false" {
			return fmt.Sprintf("must be %s, not %q", f.kind(), text)
		}
		f.value.SetBool(text == "true")
	default:
		f.value.SetString(text)
	}
	return ""
}

// text formats the value so that set can parse it.
func (f field) text() string { return fmt.Sprint(f.value.Interface()) }

func (f field) kind() string {
	switch f.value.Kind() {
	case reflect.Int:
		return "a whole number"
	case reflect.Bool:
		return "true or false"
	default:
		return "text"
	}
}

// values describes the allowed values, for the documentation.
func (f field) values() string {
	if low, high, ok := f.limits(); ok {
		return fmt.Sprintf("%d to %d", low, high)
	}
	if words := f.words(); len(words) > 0 {
		return list(words)
	}
	if f.value.Kind() == reflect.Bool {
		return f.kind()
	}
	return ""
}

// limits parses the tag range:"low..high".
func (f field) limits() (low, high int, ok bool) {
	_, err := fmt.Sscanf(f.tag.Get("range"), "%d..%d", &low, &high)
	return low, high, err == nil
}

// words parses the tag oneof:"a b c".
func (f field) words() []string { return strings.Fields(f.tag.Get("oneof")) }

// list formats words as "a, b or c".
func list(words []string) string {
	last := len(words) - 1
	if last <= 0 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:last], ", ") + " or " + words[last]
}
