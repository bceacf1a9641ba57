package licences

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Platforms returns the platforms of released programs.
func Platforms() []string {
	return []string{"darwin/amd64", "darwin/arm64", "linux/amd64", "linux/arm64"}
}

// Programs returns the packages of released programs.
func Programs() []string { return []string{"./cmd/tasker", "./cmd/tasker-ctl"} }

// std is the name of the standard library in package URLs.
const std = "std"

// A Module is an external module with the directories of its used packages.
type Module struct {
	Path, Version string
	Dir           string
	Packages      []string
}

func (m Module) String() string { return strings.TrimSuffix(m.Path+"@"+m.Version, "@") }

// dirs returns the directories from the root of the module to each package.
func (m Module) dirs() []string {
	all := map[string]bool{m.Dir: true}
	for _, dir := range m.Packages {
		for ; dir != m.Dir && strings.HasPrefix(dir, m.Dir); dir = filepath.Dir(dir) {
			all[dir] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// Released returns the modules that are linked into the programs on some platforms, and the
// standard library.
func Released(ctx context.Context, root string, platforms []string) ([]Module, error) {
	all := modules{}
	for _, platform := range platforms {
		goos, goarch, ok := strings.Cut(platform, "/")
		if !ok {
			return nil, fmt.Errorf("invalid platform %q: must be as linux/amd64", platform)
		}
		env := []string{"GOOS=" + goos, "GOARCH=" + goarch, "CGO_ENABLED=0"}
		if err := all.list(ctx, root, env, Programs()...); err != nil {
			return nil, err
		}
	}
	return all.sorted(), nil
}

// Outside returns the modules that packages and tests of the repository use but released programs
// do not. It uses Linux on every machine.
func Outside(ctx context.Context, root string, released []Module) ([]Module, error) {
	all := modules{}
	for _, dir := range []string{".", "bench", "tools"} {
		if err := all.list(ctx, filepath.Join(root, dir), []string{"GOOS=linux", "GOARCH=amd64"}, "-test", "./..."); err != nil {
			return nil, err
		}
	}
	for _, m := range released {
		delete(all, m.Path)
	}
	return all.sorted(), nil
}

// modules maps paths to modules.
type modules map[string]*Module

func (all modules) sorted() []Module {
	var list []Module
	for _, m := range all {
		slices.Sort(m.Packages)
		m.Packages = slices.Compact(m.Packages)
		list = append(list, *m)
	}
	slices.SortFunc(list, func(a, b Module) int { return cmp.Compare(a.Path, b.Path) })
	return list
}

// list adds the modules that packages need in an environment.
func (all modules) list(ctx context.Context, dir string, env []string, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", append([]string{"list", "-deps", "-json=Dir,Module,Standard,Root"}, args...)...)
	cmd.Dir, cmd.Env = dir, append(append(os.Environ(), "GOWORK=off"), env...)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("go list in %s: %w\n%s", dir, err, said.String())
	}
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			Dir, Root string
			Standard  bool
			Module    *struct {
				Path, Version, Dir string
				Main               bool
				Replace            *struct{ Path, Version, Dir string }
			}
		}
		err := decoder.Decode(&p)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("go list in %s: %w", dir, err)
		case p.Standard && p.Root != "":
			all.add(Module{Path: std, Dir: p.Root}, p.Root) // packages of std have no license files
		case p.Module == nil || p.Module.Main:
		case p.Module.Replace != nil && p.Module.Replace.Version == "": // another module of this repository
		case p.Module.Replace != nil:
			all.add(Module{p.Module.Replace.Path, p.Module.Replace.Version, p.Module.Replace.Dir, nil}, p.Dir)
		default:
			all.add(Module{p.Module.Path, p.Module.Version, p.Module.Dir, nil}, p.Dir)
		}
	}
}

// add adds a package of a module. If modules of this repository use different versions, one of them
// is checked.
func (all modules) add(m Module, dir string) {
	known := all[m.Path]
	if known == nil {
		known = &m
		all[m.Path] = known
	}
	if strings.HasPrefix(dir, known.Dir) {
		known.Packages = append(known.Packages, dir)
	}
}
