package cli

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// expected is what a flag takes, as the error of a value that it does not take.
type expected string

// Error says what the flag takes.
func (e expected) Error() string { return "must be " + string(e) }

// flagError says which values a flag takes, in words that are not Go's.
func flagError(_ *cobra.Command, err error) error {
	wrong, ok := errors.AsType[*pflag.InvalidValueError](err)
	if !ok || wrong.Unwrap() == nil {
		return UsageError{err.Error()}
	}
	cause := wrong.Unwrap()
	var takes expected
	var number *strconv.NumError
	switch {
	case errors.As(cause, &takes):
	case errors.As(cause, &number) && number.Func == "ParseBool":
		takes = "true or false"
	case errors.As(cause, &number):
		takes = "a whole number"
	default:
		return UsageError{err.Error()}
	}
	return Usagef("--%s must be %s, not %q", wrong.GetFlag().Name, string(takes), wrong.GetValue())
}

// A bounded is the value of a flag that is a number with bounds.
type bounded[N int | int64] struct {
	n           *N
	least, most N // most 0: none
}

// String returns the number.
func (b bounded[N]) String() string { return strconv.FormatInt(int64(*b.n), 10) }

// Type is what the help calls the value.
func (b bounded[N]) Type() string { return "int" }

// Set reads the number.
func (b bounded[N]) Set(text string) error {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < int64(b.least) || (b.most > 0 && n > int64(b.most)) {
		if b.most == 0 {
			return expected(fmt.Sprintf("a number from %d on", b.least))
		}
		return expected(fmt.Sprintf("a number from %d to %d", b.least, b.most))
	}
	*b.n = N(n)
	return nil
}

// Number returns the value of a flag that takes numbers from least to most; most 0
// is no bound.
func Number[N int | int64](n *N, least, most N) pflag.Value { return bounded[N]{n, least, most} }

// A duration is the value of a flag that takes durations from least to most in whole steps.
type duration struct {
	d                 *time.Duration
	step, least, most time.Duration // most 0: none
}

// String returns the duration, or nothing if it is zero.
func (v duration) String() string {
	if *v.d == 0 {
		return ""
	}
	return v.d.String()
}

// Type is what the help calls the value.
func (v duration) Type() string { return "duration" }

// Set reads the duration.
func (v duration) Set(text string) error {
	d, err := ParseDuration(text)
	if err != nil || !v.allows(d) {
		return expected(v.description())
	}
	*v.d = d
	return nil
}

func (v duration) allows(d time.Duration) bool {
	return d >= v.least && (v.most == 0 || d <= v.most) && d%v.step == 0
}

// description says which durations are allowed, with examples of them.
func (v duration) description() string {
	var examples []string
	for _, text := range []string{"500ms", "30s", "5m", "4h", "12h", "7d", "90d"} {
		if d, _ := ParseDuration(text); v.allows(d) {
			examples = append(examples, text)
		}
	}
	words := "a duration"
	if n := len(examples); n > 0 {
		words = fmt.Sprintf("a duration such as %s, %s or %s", examples[0], examples[n/2], examples[n-1])
	}
	if v.step >= time.Minute {
		words += ", in whole minutes"
	}
	switch {
	case v.most > 0:
		words += fmt.Sprintf(", from %s to %s", shortDuration(v.least), shortDuration(v.most))
	case v.least > 0:
		words += fmt.Sprintf(", %s or more", shortDuration(v.least))
	}
	return words
}

// shortDuration formats a duration as flags take it: 1m, 7d.
func shortDuration(d time.Duration) string {
	if d > 0 && d%day == 0 {
		return fmt.Sprintf("%dd", d/day)
	}
	text := d.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, zero) {
			text = text[:len(text)-2]
		}
	}
	return text
}

const day = 24 * time.Hour

// longUnit matches a number of days or weeks.
var longUnit = regexp.MustCompile(`([0-9]+(?:\.[0-9]+)?)([dw])`)

// ParseDuration is [time.ParseDuration] with days and weeks of seven days: 7d, 1w, 1d12h.
func ParseDuration(text string) (time.Duration, error) {
	return time.ParseDuration(longUnit.ReplaceAllStringFunc(text, func(part string) string {
		n, _ := strconv.ParseFloat(part[:len(part)-1], 64) // the pattern matches numbers only
		if n *= 24; strings.HasSuffix(part, "w") {
			n *= 7
		}
		return strconv.FormatFloat(n, 'f', -1, 64) + "h"
	}))
}

// Duration returns the value of a flag that takes durations, with a default.
func Duration(d *time.Duration, usual time.Duration) pflag.Value {
	*d = usual
	return duration{d, 1, 0, 0}
}

// Minutes returns the value of a flag that takes durations in whole minutes, from
// least on.
func Minutes(d *time.Duration, least time.Duration) pflag.Value {
	return duration{d, time.Minute, least, 0}
}

// Span returns the value of a flag that takes durations in whole seconds, from least to most.
func Span(d *time.Duration, least, most time.Duration) pflag.Value {
	return duration{d, time.Second, least, most}
}

// A choice is the value of a flag that takes one of a list of words.
type choice[T ~string] struct {
	value *T
	words []T
}

// String returns the word.
func (v choice[T]) String() string { return string(*v.value) }

// Type is what the help calls the value.
func (v choice[T]) Type() string { return "string" }

// Set reads the word. An empty one is left to [RefuseEmpty].
func (v choice[T]) Set(text string) error {
	if text != "" && !slices.Contains(v.words, T(text)) {
		return expected("one of " + Join(v.words))
	}
	*v.value = T(text)
	return nil
}

func (v choice[T]) choices() []string { return texts(v.words) }

// Choice returns the value of a flag that takes one of a list of words. [Root]
// makes shells complete them.
func Choice[T ~string](value *T, words []T) pflag.Value { return choice[T]{value, words} }

// A choices is the value of a flag that takes several of a list of words.
type choices struct {
	values *[]string
	words  []string
}

// String returns the words.
func (v choices) String() string { return "[" + strings.Join(*v.values, ",") + "]" }

// Type is what the help calls the value.
func (v choices) Type() string { return "strings" }

// Set reads words with commas between them.
func (v choices) Set(text string) error {
	for word := range strings.SplitSeq(text, ",") {
		one := choice[string]{new(string), v.words}
		if err := one.Set(word); err != nil {
			return err
		}
		*v.values = append(*v.values, word)
	}
	return nil
}

func (v choices) choices() []string { return v.words }

// Choices returns the value of a flag that takes several of a list of words. The
// flag may be repeated.
func Choices[T ~string](values *[]string, words []T) pflag.Value {
	return choices{values, texts(words)}
}

// An optional is the value of a flag that is true, false, or not given.
type optional struct{ value **bool }

// String returns the value.
func (v optional) String() string {
	if *v.value == nil {
		return ""
	}
	return strconv.FormatBool(**v.value)
}

// Type is what the help calls the value.
func (v optional) Type() string { return "bool" }

// Set reads the value.
func (v optional) Set(text string) error {
	is, err := strconv.ParseBool(text)
	*v.value = &is
	return err
}

// Optional adds a flag that is true, false, or not given.
func Optional(c *cobra.Command, value **bool, name, usage string) {
	c.Flags().Var(optional{value}, name, usage)
	c.Flags().Lookup(name).NoOptDefVal = "true"
}

// completeFlags makes shells complete the words that flags take.
func completeFlags(c *cobra.Command) {
	each := func(f *pflag.Flag) {
		if v, ok := f.Value.(interface{ choices() []string }); ok {
			complete := cobra.FixedCompletions(v.choices(), cobra.ShellCompDirectiveNoFileComp)
			if err := c.RegisterFlagCompletionFunc(f.Name, complete); err != nil {
				panic(err) // it was registered before
			}
		}
	}
	c.LocalFlags().VisitAll(each)
}

func texts[T ~string](words []T) []string {
	list := make([]string, len(words))
	for i, w := range words {
		list[i] = string(w)
	}
	return list
}

// Join lists words with commas between them.
func Join[T ~string](words []T) string { return strings.Join(texts(words), ", ") }

// RefuseEmpty refuses a flag that is given without a value: an unset variable must
// not be taken for an absent flag.
func RefuseEmpty(c *cobra.Command) error {
	var err error
	c.Flags().Visit(func(f *pflag.Flag) {
		text := strings.Trim(f.Value.String(), " \t\n")
		list, ok := f.Value.(pflag.SliceValue)
		empty := ok && slices.ContainsFunc(list.GetSlice(), func(s string) bool { return strings.TrimSpace(s) == "" })
		if empty || (f.Value.Type() == "string" && text == "") || (f.Value.Type() == "strings" && text == "[]") {
			err = Usagef("--%s is given but empty: give it a value (is a variable unset?)", f.Name)
		}
	})
	return err
}
