package worker

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
)

// maxPath limits the depth of a path, because a value may contain itself.
const maxPath = 100

// locateUnencodable adds the path of the value that encoding/json rejected to its error, such as
// result.items[1].when.
func locateUnencodable(v any, name string, err error) error {
	path, cause := descend(reflect.ValueOf(v), name, err)
	return fmt.Errorf("%s: %w", path, cause)
}

// descend returns the path of the innermost value in v that cannot be encoded, and the reason. err
// is the reason why v itself cannot be encoded.
func descend(v reflect.Value, path string, err error) (string, error) {
	for range maxPath {
		for v.Kind() == reflect.Interface || v.Kind() == reflect.Pointer && !encodesItself(v) {
			v = v.Elem()
		}
		if !v.IsValid() || encodesItself(v) {
			break
		}
		child, step, cause := unencodableChild(v)
		if cause == nil {
			break
		}
		v, path, err = child, path+step, cause
	}
	return path, err
}

// encodesItself reports whether the type of v defines its JSON.
func encodesItself(v reflect.Value) bool {
	if !v.IsValid() || !v.CanInterface() {
		return true
	}
	switch v.Interface().(type) {
	case json.Marshaler, encoding.TextMarshaler:
		return true
	}
	return false
}

// unencodableChild returns the first element of v that cannot be encoded, its step in the path and
// the reason. The reason is nil if there is none.
func unencodableChild(v reflect.Value) (child reflect.Value, step string, cause error) {
	switch v.Kind() {
	case reflect.Map:
		for _, key := range v.MapKeys() {
			if err := encodable(v.MapIndex(key)); err != nil {
				return v.MapIndex(key), "." + fmt.Sprint(key), err
			}
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			if err := encodable(v.Index(i)); err != nil {
				return v.Index(i), fmt.Sprintf("[%d]", i), err
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
			if !v.Type().Field(i).IsExported() || name == "-" {
				continue
			}
			if name == "" {
				name = v.Type().Field(i).Name
			}
			if err := encodable(v.Field(i)); err != nil {
				return v.Field(i), "." + name, err
			}
		}
	default:
	}
	return v, "", nil
}

func encodable(v reflect.Value) error {
	_, err := encode(v.Interface())
	return err
}
