package bulk

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"tasker.example/tasker/client"
	"tasker.example/tasker/internal/childproc"
	"tasker.example/tasker/internal/devpg"
)

// An installation is a database with servers that can be killed.
type installation struct {
	dir, program string
	data         string // directory of the database
	log          *os.File
	pg           *devpg.Server
	port         int // of the database
	servers      []*server
}

// A server is a server process of an installation.
type server struct {
	in      *installation
	listen  string
	process *exec.Cmd
	api     *client.Client
}

const startTime = time.Minute

// install builds the program and starts a database and servers. config is appended to their
// configuration.
func install(ctx context.Context, servers int, config string) (_ *installation, err error) {
	in := &installation{}
	if in.dir, err = os.MkdirTemp("", "tasker-bulk-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, in.stop(ctx))
		}
	}()
	if in.data, err = os.MkdirTemp("", "tasker-bulk-data-"); err != nil {
		return nil, err
	}
	in.program = filepath.Join(in.dir, "tasker")
	if out, err := exec.CommandContext(ctx, "go", "build", "-C", "..", "-o", in.program, "./cmd/tasker").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build the server (run this in the folder bench): %w\n%s", err, out)
	}
	if in.log, err = os.Create(filepath.Join(in.dir, "log")); err != nil {
		return nil, err
	}
	// Without sinks, because notifications would be measured as well.
	if err := os.WriteFile(in.config(), []byte("[emission]\nsinks = \"\"\n"+config), 0o600); err != nil {
		return nil, err
	}
	ports, err := childproc.FreePorts(servers + 1)
	if err != nil {
		return nil, err
	}
	in.port = ports[0]
	if err := in.startDatabase(ctx); err != nil {
		return nil, err
	}
	migrate := exec.CommandContext(ctx, in.program, "migrate", "up")
	migrate.Env = in.environment("")
	if out, err := migrate.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("create the schema: %w\n%s", err, out)
	}
	for _, port := range ports[1:] {
		s := &server{in: in, listen: fmt.Sprintf("127.0.0.1:%d", port)}
		if s.api, err = client.New("http://" + s.listen); err != nil {
			return nil, err
		}
		in.servers = append(in.servers, s)
		if err := s.start(ctx); err != nil {
			return nil, err
		}
	}
	return in, nil
}

// config returns the path of the servers' configuration file.
func (in *installation) config() string { return filepath.Join(in.dir, "tasker.toml") }

func (in *installation) startDatabase(ctx context.Context) (err error) {
	in.pg, err = devpg.Start(ctx, devpg.Options{DataDir: in.data, Port: in.port})
	return err
}

// restartDatabase restarts the database while servers and workers use it.
func (in *installation) restartDatabase(ctx context.Context) error {
	if err := in.pg.Stop(ctx); err != nil {
		return err
	}
	return in.startDatabase(ctx)
}

func (in *installation) environment(listen string) []string {
	return append(os.Environ(), "TASKER_DATABASE_URL="+in.pg.URL(), "TASKER_SERVER_LISTEN="+listen, "TASKER_LOG_LEVEL=warn")
}

// stop stops everything and removes its files.
func (in *installation) stop(ctx context.Context) error {
	for _, s := range in.servers {
		s.kill()
	}
	var err error
	if in.pg != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), startTime)
		defer cancel()
		err = in.pg.Stop(ctx)
	}
	if in.log != nil {
		_ = in.log.Close() // the file is removed
	}
	return errors.Join(err, os.RemoveAll(in.dir), os.RemoveAll(in.data))
}

// start starts the process and waits until it is ready.
func (s *server) start(ctx context.Context) error {
	s.process = exec.CommandContext(context.WithoutCancel(ctx), s.in.program, "serve", "--config", s.in.config())
	s.process.Env, s.process.Stderr = s.in.environment(s.listen), s.in.log
	out, err := s.process.StdoutPipe()
	if err != nil {
		return err
	}
	if err := s.process.Start(); err != nil {
		return err
	}
	ready := make(chan bool, 1)
	go func() {
		defer close(ready)
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			if strings.Contains(lines.Text(), "ready at ") {
				ready <- true
			}
		}
	}()
	select {
	case ok := <-ready:
		if !ok {
			said, _ := os.ReadFile(s.in.log.Name()) // before it is removed
			return fmt.Errorf("the server ended at once:\n%s", said)
		}
		return nil
	case <-time.After(startTime):
		return errors.New("the server did not start in time")
	}
}

// kill kills the process.
func (s *server) kill() {
	if s.process != nil && s.process.Process != nil {
		_ = s.process.Process.Kill() // Wait returns the result
		_ = s.process.Wait()
	}
}
