package expression

import (
	"sync"
	"testing"

	"cel.dev/cel-go/cel"
)

// An environment changes at the first fault that it finds, so each round has its own.
func TestExpressionsAreCheckedAtOnce(t *testing.T) {
	t.Parallel()
	for range 20 {
		env, err := newBaseEnv()
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for _, text := range []string{`nothing == 1`, `[1].all(x, x > 0) && [2].exists(x, x > 0)`} {
			parsed, issues := env.Parse(text)
			if issues.Err() != nil {
				t.Fatal(issues.Err())
			}
			wg.Go(func() { checkOften(t, env, parsed, text != `nothing == 1`) })
		}
		wg.Wait()
	}
}

func checkOften(t *testing.T, env *cel.Env, parsed *cel.Ast, right bool) {
	t.Helper()
	for range 20 {
		if _, err := check(env, parsed); (err == nil) != right {
			t.Error(err)
		}
	}
}
