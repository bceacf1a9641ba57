package web

import (
	"errors"
	"testing"

	"tasker.example/tasker"
)

func TestMessagesBeginWithAnUpperCaseLetter(t *testing.T) {
	t.Parallel()
	const internal = "The server failed. See its log."
	for _, tt := range []struct {
		name string
		err  error
		want string
	}{
		{"ASCII", tasker.Errorf(tasker.Invalid, "nothing would change"), "Nothing would change"},
		{"two bytes", tasker.Errorf(tasker.Conflict, "élan has it"), "Élan has it"},
		{"three bytes, without case", tasker.Errorf(tasker.Conflict, "花子 has it"), "花子 has it"},
		{"not a letter", tasker.Errorf(tasker.Invalid, `"x" is not a UUID`), `"x" is not a UUID`},
		{"not UTF-8", tasker.Errorf(tasker.Invalid, "\xff is not text"), "\xff is not text"},
		{"one character", tasker.Errorf(tasker.Invalid, "ß"), "ß"},
		{"empty", &tasker.Error{Code: tasker.Invalid}, internal},
		{"internal", errors.New("secret detail"), internal},
	} {
		if got := errorMessage(tt.err); got != tt.want {
			t.Errorf("%s: shows %q, want %q", tt.name, got, tt.want)
		}
	}
}
