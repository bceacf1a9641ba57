package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/payload"
	"tasker.example/tasker/internal/suggest"

	"github.com/pelletier/go-toml/v2"
)

const maxFileBytes = 1 << 20

// Load returns the defaults, overridden by the file at path, if it is not empty, and by environ, which
// has the form of [os.Environ]. An empty variable counts as absent.
//
// The error is Invalid and lists all unreadable parts, with a slice of [tasker.Fault] as details.
// [Config.Validate] checks the values, after the flags have been applied.
func Load(path string, environ []string) (Config, error) {
	c := Default()
	var faults []tasker.Fault
	where := "the configuration"
	if path != "" {
		where = fmt.Sprintf("the configuration (file %q and environment)", path)
		doc, err := readFile(path)
		if err != nil {
			return Config{}, err
		}
		faults = c.readTOML(doc)
		c.completeReceivers()
	}
	faults = append(faults, c.readEnvironment(environ)...)
	if err := newFaultsError(where, faults); err != nil {
		return Config{}, err
	}
	return c, nil
}

func readFile(path string) ([]byte, error) {
	doc, err := readAtMost(path, maxFileBytes+1)
	var where *fs.PathError
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, tasker.Errorf(tasker.Invalid, "the configuration file %q does not exist", path)
	case errors.As(err, &where):
		return nil, tasker.Errorf(tasker.Invalid, "cannot read the configuration file %q: %v", path, where.Err)
	case err != nil:
		return nil, tasker.Errorf(tasker.Invalid, "cannot read the configuration file %q: %v", path, err)
	case len(doc) > maxFileBytes:
		return nil, tasker.Errorf(tasker.TooLarge,
			"the configuration file %q is larger than %d bytes; is it the right file?", path, maxFileBytes)
	}
	return doc, nil
}

func readAtMost(path string, most int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	doc, err := io.ReadAll(io.LimitReader(f, most))
	return payload.TrimBOM(doc), err
}

func (c *Config) readTOML(doc []byte) []tasker.Fault {
	err := toml.NewDecoder(bytes.NewReader(doc)).DisallowUnknownFields().Decode(c)
	var unknown *toml.StrictMissingError
	var broken *toml.DecodeError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &unknown):
		var faults []tasker.Fault
		for i := range unknown.Errors {
			faults = append(faults, c.newUnknownKeyFault(&unknown.Errors[i]))
		}
		return faults
	case errors.As(err, &broken):
		return []tasker.Fault{c.newTOMLFault(broken)}
	default:
		return []tasker.Fault{{Message: "invalid TOML: " + err.Error()}}
	}
}

func (c *Config) newUnknownKeyFault(e *toml.DecodeError) tasker.Fault {
	line, column := e.Position()
	name := strings.Join(e.Key(), ".")
	return tasker.Fault{Line: line, Column: column, Path: formatName(name), Message: "unknown key" + suggest.Ending(name, c.fieldNames())}
}

// newTOMLFault converts a decoding error to a fault: a value of the wrong type, or invalid TOML.
func (c *Config) newTOMLFault(e *toml.DecodeError) tasker.Fault {
	line, column := e.Position()
	fault := tasker.Fault{Line: line, Column: column, Message: "invalid TOML: " + strings.TrimPrefix(e.Error(), "toml: ")}
	name := strings.Join(e.Key(), ".")
	for _, f := range c.listFields() {
		switch {
		case f.name == name || strings.HasPrefix(name, f.name+"."):
			fault.Path, fault.Message = f.name, "must be "+f.describeKind()
		case name != "" && strings.HasPrefix(f.name, name+"."):
			fault.Path, fault.Message = name, "must be a table"
		}
	}
	return fault
}

// fieldNames returns all names that a configuration file may contain: keys and tables.
func (c *Config) fieldNames() []string {
	var names []string
	for _, f := range c.listFields() {
		parts := strings.Split(f.name, ".")
		for n := 1; n <= len(parts); n++ {
			if name := strings.Join(parts[:n], "."); !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

// databaseURL is an environment variable that hosting services set. TASKER_DATABASE_URL overrides
// it.
const databaseURL = "DATABASE_URL"

func (c *Config) readEnvironment(environ []string) []tasker.Fault {
	var faults []tasker.Fault
	environ = slices.DeleteFunc(slices.Clone(environ), serviceVariable.MatchString)
	c.addEnvironmentReceivers(environ)
	fields := map[string]field{}
	var names []string
	for _, f := range c.listFields() {
		fields[f.envName()] = f
		names = append(names, f.envName())
	}
	given := map[string]string{}
	var order []string
	for _, variable := range environ {
		name, text, _ := strings.Cut(variable, "=")
		if _, twice := given[name]; !twice {
			order = append(order, name)
		}
		given[name] = text
	}
	slices.Sort(order)
	if text := given[databaseURL]; text != "" {
		c.Database.URL = text
	}
	for _, name := range order {
		f, known := fields[name]
		secret, ofFile := fields[strings.TrimSuffix(name, fileEnding)]
		switch {
		case !known && ofFile && strings.HasSuffix(name, fileEnding) && secret.isSecret():
			if wrong := secret.setFromFile(given[name], given[secret.envName()]); wrong != "" {
				faults = append(faults, tasker.Fault{Path: name, Message: wrong})
			}
		case !known && strings.HasPrefix(name, prefix) && !otherVariables.MatchString(name):
			faults = append(faults, tasker.Fault{Path: formatName(name),
				Message: "unknown variable" + findNearestVariable(name, names)})
		case !known || given[name] == "":
		default:
			if wrong := f.parse(given[name]); wrong != "" {
				faults = append(faults, tasker.Fault{Path: name, Message: wrong})
			}
		}
	}
	return faults
}

// fileEnding is the suffix of environment variables that contain the path of a file with a secret.
const fileEnding = "_FILE"

// maxSecret is the maximum size of a file with a secret, in bytes.
const maxSecret = 64 << 10

func (f field) isSecret() bool { return f.tag.Get("secret") == "true" }

// setFromFile sets a secret to the content of a file, as container platforms provide it. It
// describes what is wrong, or returns "".
func (f field) setFromFile(path, given string) string {
	if path == "" {
		return ""
	}
	if given != "" {
		return fmt.Sprintf("conflicts with %s: set only one of them", f.envName())
	}
	doc, err := readAtMost(path, maxSecret+1)
	var where *fs.PathError
	switch {
	case errors.As(err, &where):
		return fmt.Sprintf("cannot read the file %q: %v", path, where.Err)
	case err != nil:
		return fmt.Sprintf("cannot read the file %q: %v", path, err)
	case len(doc) > maxSecret:
		return fmt.Sprintf("the file %q is larger than %d bytes; is it the right file?", path, maxSecret)
	}
	text := strings.TrimRight(string(doc), "\r\n")
	if text == "" {
		return fmt.Sprintf("the file %q is empty", path)
	}
	return f.parse(text)
}

// serviceVariable matches the variables that Kubernetes sets for each Service of a namespace, and
// Docker for each link: TASKER_SERVER_SERVICE_HOST, TASKER_SERVER_PORT=tcp://….
var serviceVariable = regexp.MustCompile(`^TASKER(_[A-Z0-9_]+)?_(SERVICE_HOST=|SERVICE_PORT(_[A-Z0-9_]+)?=|` +
	`PORT_[0-9]+_(TCP|UDP|SCTP)(_[A-Z_]+)?=|PORT=(tcp|udp|sctp)://|NAME=/|ENV_)`)

// otherVariables matches the variables of tasker-ctl, of "tasker dev", of the SDKs and of the tests.
var otherVariables = regexp.MustCompile(`^TASKER_(URL|TOKEN|TOKEN_FILE|BINARY|ACTOR|POSTGRES_BIN|POSTGRES_FETCH_URL|(TEST|DEVPG|BENCH)_.*)$`)

// findNearestVariable returns a suggestion for the end of an error about an unknown variable. It
// suggests the closest known name or, failing that, the shortest one that contains at least half
// of the words.
func findNearestVariable(name string, known []string) string {
	if ending := suggest.Ending(name, known); ending != "" {
		return ending
	}
	words := strings.Split(strings.TrimPrefix(name, prefix), "_")
	best, most := "", 0
	for _, k := range known {
		shared := 0
		for _, word := range words {
			if strings.Contains(k+"_", "_"+word+"_") {
				shared++
			}
		}
		if shared > most || shared == most && strings.Count(k, "_") < strings.Count(best, "_") {
			best, most = k, shared
		}
	}
	if 2*most < len(words) {
		return ""
	}
	return "; did you mean " + best + "?"
}
