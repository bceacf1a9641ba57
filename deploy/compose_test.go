package deploy_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"tasker.example/tasker/internal/config"
)

type compose struct {
	Services map[string]struct {
		Image       string
		Build       string
		Command     []string
		Profiles    []string
		Ports       []string
		Environment map[string]string
		DependsOn   map[string]struct{ Condition string } `yaml:"depends_on"`
		Healthcheck map[string]any
	}
	Volumes map[string]any
}

// The settings in docker-compose.yml match Tasker. The test starts no containers.
func TestComposeFile(t *testing.T) {
	text, err := os.ReadFile("../docker-compose.yml")
	if err != nil {
		t.Fatal(err)
	}
	var doc compose
	if err := yaml.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, k := range config.Keys() {
		known[k.Env] = true
	}
	for name, s := range doc.Services {
		for variable := range s.Environment {
			if strings.HasPrefix(variable, "TASKER_") && !known[variable] {
				t.Errorf("service %s sets %s, which no server knows", name, variable)
			}
		}
		for _, port := range s.Ports {
			if !strings.HasPrefix(port, "127.0.0.1:") {
				t.Errorf("service %s opens %s to more than this machine", name, port)
			}
		}
		for on, how := range s.DependsOn {
			other, there := doc.Services[on]
			if !there || (how.Condition == "service_healthy" && len(other.Healthcheck) == 0) {
				t.Errorf("service %s waits for %s to be %s, which it never is", name, on, how.Condition)
			}
		}
		if s.Build == "" && !regexp.MustCompile(`:\d`).MatchString(s.Image) {
			t.Errorf("service %s has the image %q without a version", name, s.Image)
		}
	}
	if c := doc.Services["server"].Command; !slices.Equal(c, []string{"serve", "--listen", "0.0.0.0:8080"}) {
		t.Errorf("the server is started by %v", c)
	}
	// The first key is made in the database of the server, and only when somebody asks for it.
	b := doc.Services["bootstrap"]
	const database = "TASKER_DATABASE_URL"
	if !slices.Equal(b.Command, []string{"key", "bootstrap"}) || len(b.Profiles) == 0 || b.Environment[database] == "" ||
		b.Environment[database] != doc.Services["server"].Environment[database] {
		t.Errorf("the first key is made by %+v", b)
	}
	for name := range doc.Services {
		if _, waits := doc.Services[name].DependsOn["bootstrap"]; waits {
			t.Errorf("service %s waits for the first key, which is made once", name)
		}
	}
	for _, s := range []string{"docker compose run --rm -T bootstrap > secrets/admin.token", "export TASKER_TOKEN_FILE=secrets/admin.token"} {
		if !strings.Contains(string(text), s) {
			t.Errorf("the file does not say: %s", s)
		}
	}
}

// Tokens are neither committed nor copied into an image.
func TestTokensStayWhereTheyAre(t *testing.T) {
	for _, file := range []string{"../.gitignore", "../.dockerignore"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Fields(string(text))
		if !slices.Contains(lines, "*.token") || !slices.Contains(lines, "secrets") && !slices.Contains(lines, "/secrets/") {
			t.Errorf("%s does not name them", file)
		}
	}
}

// The image is built with the Go that the module asks for, and its programs know their version.
func TestDockerfile(t *testing.T) {
	module, err := os.ReadFile("../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile("../Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	version := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindSubmatch(module)
	if version == nil || !strings.Contains(string(file), "FROM golang:"+string(version[1])+" ") {
		t.Errorf("the Dockerfile does not build with the Go of go.mod, %s", version)
	}
	flags := regexp.MustCompile(`-ldflags="([^"]*)"`).FindSubmatch(file)
	if flags == nil {
		t.Fatal("the Dockerfile passes no flags to the linker")
	}
	program := filepath.Join(t.TempDir(), "tasker")
	given := strings.NewReplacer("$VERSION", "v9.8.7", "$COMMIT", "abc1234", "$DATE", "2026-11-29").Replace(string(flags[1]))
	build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-ldflags="+given, "-o", program, "../cmd/tasker")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	out, err := exec.CommandContext(t.Context(), program, "version").Output()
	if err != nil || !strings.HasPrefix(string(out), "tasker v9.8.7 (commit abc1234, 2026-11-29, go1") {
		t.Errorf("it prints %s, %v", out, err)
	}
}
