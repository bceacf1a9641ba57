package access

import (
	"crypto/rand"
	"crypto/sha256"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"tasker.example/tasker"
)

// A Key is how a program signs in.
type Key struct {
	UUID       tasker.ID
	Name       string
	Grants     []string // as [ParseGrant] reads them
	Prefixes   []string // of its secrets that are in use, the newest first
	CreatedBy  string
	CreatedAt  time.Time
	ExpiresAt  *time.Time // nil means never
	LastUsedAt *time.Time // to the minute
	RevokedAt  *time.Time
	RevokedBy  *string
}

// A Session is a browser that is signed in.
type Session struct {
	UUID      tasker.ID
	Subject   string
	KeyUUID   *tasker.ID // with which it signed in; nil means at the identity provider
	Groups    []string   // that the provider named
	CreatedAt time.Time
	SeenAt    time.Time // to the minute
	EndsAt    time.Time // unless it is used again before
}

// Subject returns what is recorded as the actor of what is done with a key.
func Subject(keyName string) string { return "key:" + keyName }

// A Token is the secret of a key, as a program sends it. It is shown once.
type Token struct {
	Text   string
	Prefix string   // is stored, and found again by
	Digest [32]byte // is stored
}

const tokenMark = "tsk_"

// tokenForm tells tokens from other text, also for programs that look for secrets in
// source code: a mark, ten characters of the prefix, and 130 random bits.
var tokenForm = regexp.MustCompile(`^tsk_[a-z2-7]{10}_[A-Z2-7]{26}$`)

// NewToken returns a new token from the system's random numbers.
func NewToken() Token {
	t, _ := ParseToken(tokenMark + strings.ToLower(rand.Text()[:10]) + "_" + rand.Text())
	return t
}

// ParseToken reads a token, and reports whether the text has the form of one.
func ParseToken(text string) (Token, bool) {
	if !tokenForm.MatchString(text) {
		return Token{}, false
	}
	return Token{Text: text, Prefix: text[:len(tokenMark)+10], Digest: sha256.Sum256([]byte(text))}, true
}

// IsToken reports whether a text is meant to be the token of a key, whole or not.
func IsToken(text string) bool { return strings.HasPrefix(text, tokenMark) }

// linkTokenForm tells the tokens of answer links from other text: a mark, and 130 random bits.
var linkTokenForm = regexp.MustCompile(`^tsl_[A-Z2-7]{26}$`)

// NewLinkToken returns a new token of an answer link, which has no prefix.
func NewLinkToken() Token {
	t, _ := ParseLinkToken("tsl_" + rand.Text())
	return t
}

// ParseLinkToken reads the token of an answer link, and reports whether the text has the form of one.
func ParseLinkToken(text string) (Token, bool) {
	if !linkTokenForm.MatchString(text) {
		return Token{}, false
	}
	return Token{Text: text, Digest: sha256.Sum256([]byte(text))}, true
}

// MaxKeyName bounds the name of a key, in characters.
const MaxKeyName = 100

// CheckKeyName says what is wrong with the name of a key. The error is Invalid.
func CheckKeyName(name string) error {
	if name == "" || utf8.RuneCountInString(name) > MaxKeyName || cleanSubject(name) != name || !utf8.ValidString(name) {
		return tasker.Errorf(tasker.Invalid, "invalid name %q: must have 1 to %d characters, without blanks, parentheses and %%", shorten(name), MaxKeyName)
	}
	return nil
}
