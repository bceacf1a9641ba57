package cli

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

// shop is a small command line.
func shop(ran *[]string) *cobra.Command {
	var n int
	var to int64
	var kind string
	var topics []string
	var open *bool
	sell := &cobra.Command{
		Use: "sell ITEM [NOTE] --to N", Args: Args,
		RunE: func(c *cobra.Command, args []string) error {
			if err := RejectEmpty(c); err != nil {
				return err
			}
			*ran = append(*ran, args...)
			return errors.New("sold out")
		},
	}
	sell.Flags().Var(Number(&n, 1, 9), "count", "")
	sell.Flags().Var(Number(&to, 1, 0), "to", "")
	sell.Flags().Var(Choice(&kind, []string{"new", "used"}), "kind", "")
	sell.Flags().Var(Choices(&topics, []string{"a", "b"}), "topic", "")
	Optional(sell, &open, "open", "")
	sell.Flags().Var(Duration(new(time.Duration), 0), "wait", "")
	sell.Flags().Var(Span(new(time.Duration), time.Minute, 24*time.Hour), "for", "")
	sell.Flags().Bool("fast", false, "")
	root := NewGroup(&cobra.Command{Use: "shop"}, sell, &cobra.Command{Use: "pack BOX...", Args: Args, RunE: func(_ *cobra.Command, args []string) error {
		*ran = append(*ran, args...)
		return nil
	}})
	ConfigureRoot(root)
	return root
}

func TestACommandLineThatIsWrongRunsNothing(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"sll":                     `unknown command "sll" for "shop"; did you mean sell?`,
		"nothing":                 `unknown command "nothing" for "shop"`,
		"help nothing":            `unknown command "nothing"`,
		"completion nothing":      `unknown command "nothing" for "shop completion"`,
		"sell":                    `missing ITEM: shop sell ITEM [NOTE] --to N [flags]`,
		"sell a b c":              `unexpected argument "c": shop sell ITEM [NOTE] --to N [flags]`,
		"pack":                    `missing BOX: shop pack BOX... [flags]`,
		"sell a --colour":         `unknown flag: --colour`,
		"sell a --count 0":        `--count must be a number from 1 to 9, not "0"`,
		"sell a --count many":     `--count must be a number from 1 to 9, not "many"`,
		"sell a --to 0":           `--to must be a number of at least 1, not "0"`,
		"sell a --kind old":       `--kind must be one of new, used, not "old"`,
		"sell a --kind=":          `--kind is empty: set a value (is a variable unset?)`,
		"sell a --topic a,c":      `--topic must be one of a, b, not "a,c"`,
		"sell a --open=maybe":     `--open must be true or false, not "maybe"`,
		"sell a --fast=maybe":     `--fast must be true or false, not "maybe"`,
		"sell a --wait 5":         `--wait must be a duration such as 500ms, 4h or 90d, not "5"`,
		"sell a --wait -5s":       `--wait must be a duration such as 500ms, 4h or 90d, not "-5s"`,
		"sell a --wait 7days":     `--wait must be a duration such as 500ms, 4h or 90d, not "7days"`,
		"sell a --for 2d":         `--for must be a duration such as 5m, 4h or 12h, from 1m to 1d, not "2d"`,
		"sell a --wait 5s --wait": `flag needs an argument: --wait`,
	} {
		var ran []string
		_, err := Run(t.Context(), shop(&ran), strings.Fields(line))
		if !IsUsage(err) || ExitCode(err) != ExitUsage || err.Error() != want || len(ran) > 0 {
			t.Errorf("shop %s: error %v, want %q; it ran with %q", line, err, want, ran)
		}
	}
}

func TestParseDuration(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"7d": 168 * time.Hour, "1w": 168 * time.Hour, "1d12h": 36 * time.Hour, "1.5d": 36 * time.Hour, "90m": 90 * time.Minute, "-1d": -24 * time.Hour,
		"d": -1, "7days": -1, "99999999999999d": -1, "7 d": -1, "1e3d": -1,
	} {
		if got, err := ParseDuration(text); (err != nil) != (want == -1) || err == nil && got != want {
			t.Errorf("%q is %v (error %v), want %v", text, got, err, want)
		}
	}
}

func TestACommandLineThatIsRightRuns(t *testing.T) {
	t.Parallel()
	var ran []string
	root := shop(&ran)
	c, err := Run(t.Context(), root, strings.Fields("sell a b --count 3 --to 99999999999 --kind used --topic a,b --topic a --open --wait 5s"))
	if IsUsage(err) || ExitCode(err) != ExitError || c.CommandPath() != "shop sell" || strings.Join(ran, " ") != "a b" {
		t.Errorf("%s ended with %v after %q", c.CommandPath(), err, ran)
	}
	for name, want := range map[string]string{"count": "3", "to": "99999999999", "kind": "used", "topic": "[a,b,a]", "open": "true", "wait": (5 * time.Second).String()} {
		if got := c.Flags().Lookup(name).Value.String(); got != want {
			t.Errorf("--%s is %q, want %q", name, got, want)
		}
	}
	if c, err = Run(t.Context(), shop(&ran), []string{"pack", "1", "2"}); err != nil || strings.Join(ran, " ") != "a b 1 2" {
		t.Errorf("%s ended with %v after %q", c.CommandPath(), err, ran)
	}
}

// A group prints its help to standard error: a script that forgets the command must
// not take it for an answer.
func TestAGroupAloneIsAUsageError(t *testing.T) {
	t.Parallel()
	var ran []string
	var out, errs bytes.Buffer
	root := shop(&ran)
	root.SetOut(&out)
	root.SetErr(&errs)
	_, err := Run(t.Context(), root, nil)
	if ExitCode(err) != ExitUsage || out.Len() > 0 || !strings.Contains(errs.String(), "Available Commands") {
		t.Errorf("%v, printed %q and %q", err, out.String(), errs.String())
	}
}

func TestShellsCompleteTheWordsOfAFlag(t *testing.T) {
	t.Parallel()
	for flag, want := range map[string]string{"--kind": "new\nused\n", "--topic": "a\nb\n"} {
		var ran []string
		var out bytes.Buffer
		root := shop(&ran)
		root.SetOut(&out)
		root.SetErr(&bytes.Buffer{})
		if _, err := Run(t.Context(), root, []string{"__complete", "sell", "a", flag, ""}); err != nil || !strings.HasPrefix(out.String(), want) {
			t.Errorf("%s completes to %q, %v", flag, out.String(), err)
		}
	}
}

func TestVersion(t *testing.T) {
	if Version() == "" {
		t.Error("no version")
	}
	version, commit, date = "v0.1.0", "abc1234", "2026-11-29T00:00:00Z"
	if text := ThisBuild().String(); Version() != "v0.1.0" || !strings.HasPrefix(text, "v0.1.0 (commit abc1234, 2026-11-29T00:00:00Z, go1") {
		t.Errorf("it prints %s", text)
	}
}
