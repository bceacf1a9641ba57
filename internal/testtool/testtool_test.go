package testtool

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A verdict is a test that notes how it ended.
type verdict struct {
	testing.TB
	skipped, failed string
}

func (v *verdict) Helper()      {}
func (v *verdict) Name() string { return "TestOfSomething" }

func (v *verdict) Skip(args ...any) {
	v.skipped = args[0].(string)
	panic(v)
}

func (v *verdict) Fatal(args ...any) {
	v.failed = args[0].(string)
	panic(v)
}

func (v *verdict) Fatalf(format string, _ ...any) { v.Fatal(format) }

func TestAMissingProgramSkipsAndIsCounted(t *testing.T) {
	list := filepath.Join(t.TempDir(), "skipped")
	t.Setenv(skippedEnv, list)
	t.Setenv(requireEnv, "")
	v := &verdict{}
	func() {
		defer func() { _ = recover() }()
		Find(v, "no-such-program", "apt-get install it")
	}()
	if want := "no-such-program is not installed; apt-get install it"; v.skipped != want || v.failed != "" {
		t.Errorf("skipped %q, failed %q, want skipped %q", v.skipped, v.failed, want)
	}
	lines, err := os.ReadFile(list)
	if err != nil {
		t.Fatal(err)
	}
	if want := "no-such-program\tapt-get install it\tTestOfSomething\n"; string(lines) != want {
		t.Errorf("recorded %q, want %q", lines, want)
	}
}

func TestWhereAllIsRequiredAMissingProgramFails(t *testing.T) {
	list := filepath.Join(t.TempDir(), "skipped")
	t.Setenv(skippedEnv, list)
	for value, want := range map[string]string{"true": "is not installed", "1": "is not installed", "yes please": "must be true or false"} {
		t.Setenv(requireEnv, value)
		v := &verdict{}
		func() {
			defer func() { _ = recover() }()
			Missing(v, "RabbitMQ", "install it")
		}()
		if !strings.Contains(v.failed, want) || v.skipped != "" {
			t.Errorf("with %q: skipped %q, failed %q, want a failure with %q", value, v.skipped, v.failed, want)
		}
	}
	if _, err := os.Stat(list); err == nil {
		t.Error("a failed test was recorded as skipped")
	}
}

func TestAProgramThatIsThereIsFound(t *testing.T) {
	t.Setenv(requireEnv, "true")
	if path := Find(t, "go", "see https://go.dev/dl"); !filepath.IsAbs(path) {
		t.Errorf("found %q", path)
	}
}
