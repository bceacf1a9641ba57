package house

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path"
	"strings"
	"testing"
)

const module = "tasker"

// floors has every room, by its path in the module. A room imports only rooms
// on lower floors. The word * stands for the name of any one room.
var floors = [][]string{
	0: {"."},
	1: {
		"apiv1", "internal/auth", "internal/devpg", "internal/house", "internal/lifecycle",
		"internal/loop", "internal/metrics", "internal/payload", "internal/redact", "internal/schema",
		"internal/testtool",
	},
	2: {"client", "internal/browsertest", "internal/config", "internal/mqtest", "internal/pgtest", "internal/postgres", "internal/rabbit", "internal/telemetry", "internal/templatefile", "worker"},
	3: {"internal/ctl", "internal/engine", "internal/feed", "internal/sink", "rabbitmq", "workertest"},
	4: {"internal/dispatch", "internal/dlq", "internal/emission"},
	5: {"internal/api", "internal/demo", "internal/web"},
	6: {"deploy", "embed", "internal/app"},
	7: {"cmd/*", "examples/*", "internal/bench", "internal/e2e"},
}

// edge is an import: room from uses room to.
type edge struct{ from, to string }

// floorExceptions has the imports that the floors forbid, with the reason for
// each. Imports of tests are not counted, so internal/pgtest needs none.
var floorExceptions = map[edge]string{
	{"cmd/bench", "internal/bench"}: "the command is the door of that room",
}

// A room is what go list says of a package.
type room struct {
	ImportPath string
	Imports    []string
}

func TestRoomsImportOnlyLowerFloors(t *testing.T) {
	for _, complaint := range complaints(listRooms(t)) {
		t.Error(complaint)
	}
}

func TestFloorsRefuse(t *testing.T) {
	for _, tt := range []struct {
		name string
		room room
		want string // part of the one complaint; empty if there is none
	}{
		{"nothing: a lower floor", room{"tasker/internal/engine", []string{"fmt", "tasker", "tasker/internal/postgres"}}, ""},
		{"nothing: an entered exception", room{"tasker/cmd/bench", []string{"tasker/internal/bench"}}, ""},
		{"the same floor", room{"tasker/internal/loop", []string{"tasker/internal/auth"}}, "loop (floor 1) imports internal/auth (floor 1)"},
		{"a higher floor", room{"tasker/internal/engine", []string{"tasker/internal/dlq"}}, "engine (floor 3) imports internal/dlq (floor 4)"},
		{"any import of ours at the root", room{"tasker", []string{"tasker/apiv1"}}, ". (floor 0) imports apiv1 (floor 1)"},
		{"a command that uses another", room{"tasker/cmd/tasker", []string{"tasker/cmd/tasker-ctl"}}, "(floor 7)"},
		{"a room that is not on the list", room{"tasker/internal/util", nil}, "internal/util is on no floor"},
		{"a room within a room", room{"tasker/internal/api/v2", nil}, "internal/api/v2 is on no floor"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := complaints([]room{tt.room})
			if tt.want == "" && len(got) == 0 {
				return
			}
			if tt.want == "" || len(got) != 1 || !strings.Contains(got[0], tt.want) {
				t.Errorf("got %q, want one with %q", got, tt.want)
			}
		})
	}
}

// complaints returns a sentence for each import that the floors forbid.
func complaints(rooms []room) []string {
	var all []string
	for _, r := range rooms {
		from, _ := inside(r.ImportPath)
		floor := floorOf(from)
		if floor < 0 {
			all = append(all, from+" is on no floor: enter it in the list of floors")
			continue
		}
		for _, imported := range r.Imports {
			to, ours := inside(imported)
			if ours && floorOf(to) >= floor && floorExceptions[edge{from, to}] == "" {
				all = append(all, fmt.Sprintf("%s (floor %d) imports %s (floor %d)", from, floor, to, floorOf(to)))
			}
		}
	}
	return all
}

// inside returns the path of a package within the module, and whether it has one.
func inside(importPath string) (string, bool) {
	if importPath == module {
		return ".", true
	}
	return strings.CutPrefix(importPath, module+"/")
}

// floorOf returns the floor of a room, or -1 if it is not on the list.
func floorOf(name string) int {
	for floor, rooms := range floors {
		for _, pattern := range rooms {
			if ok, _ := path.Match(pattern, name); ok {
				return floor
			}
		}
	}
	return -1
}

// listRooms asks the go command for every package of the module.
func listRooms(t *testing.T) []room {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-e", "-json=ImportPath,Imports", module+"/...")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("list packages: %v", err)
	}
	var rooms []room
	for list := json.NewDecoder(bytes.NewReader(out)); list.More(); {
		var r room
		if err := list.Decode(&r); err != nil {
			t.Fatalf("read the list of packages: %v", err)
		}
		rooms = append(rooms, r)
	}
	if len(rooms) == 0 {
		t.Fatal("the module has no packages")
	}
	return rooms
}
