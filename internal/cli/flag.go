package cli

import (
	"errors"
	"fmt"
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
	case strings.HasPrefix(cause.Error(), "time: "):
		takes = "a duration such as 500ms, 30s or 5m"
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

// A minutes is the value of a flag that is a duration in whole minutes.
type minutes struct {
	d     *time.Duration
	least time.Duration
}

// String returns the duration.
func (m minutes) String() string { return m.d.String() }

// Type is what the help calls the value.
func (m minutes) Type() string { return "duration" }

// Set reads the duration.
func (m minutes) Set(text string) error {
	d, err := time.ParseDuration(text)
	if err != nil || d < m.least || d%time.Minute != 0 {
		return expected(fmt.Sprintf("whole minutes, %v or more, such as 5m or 1h", m.least))
	}
	*m.d = d
	return nil
}

// Minutes returns the value of a flag that takes durations in whole minutes, from
// least on.
func Minutes(d *time.Duration, least time.Duration) pflag.Value { return minutes{d, least} }

// A span is the value of a flag that is a long duration, in seconds at the finest.
type span struct {
	d           *time.Duration
	least, most time.Duration
}

// String returns the duration; nothing when it is not given.
func (v span) String() string {
	if *v.d == 0 {
		return ""
	}
	return v.d.String()
}

// Type is what the help calls the value.
func (v span) Type() string { return "duration" }

// Set reads the duration: 90d is ninety days.
func (v span) Set(text string) error {
	const day = 24 * time.Hour
	d, err := time.ParseDuration(text)
	if days, found := strings.CutSuffix(text, "d"); found {
		var n int64
		n, err = strconv.ParseInt(days, 10, 32)
		d = time.Duration(min(n, int64(v.most/day)+1)) * day
	}
	if err != nil || d < v.least || d > v.most || d%time.Second != 0 {
		return expected(fmt.Sprintf("a duration such as 30m, 12h or 90d, from %v to %dd", v.least, v.most/day))
	}
	*v.d = d
	return nil
}

// Span returns the value of a flag that takes durations from least to most, also in days
// such as 90d.
func Span(d *time.Duration, least, most time.Duration) pflag.Value { return span{d, least, most} }

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
func (v choices) Type() string { return "stringSlice" }

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
		if (f.Value.Type() == "string" && text == "") || (f.Value.Type() == "stringSlice" && text == "[]") {
			err = Usagef("--%s is given but empty: give it a value (is a variable unset?)", f.Name)
		}
	})
	return err
}
