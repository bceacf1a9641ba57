package auth

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"net/url"
	"strings"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/idp"
	"tasker.example/tasker/internal/postgres"
)

// HasProvider reports whether people sign in at an identity provider.
func (a *Authenticator) HasProvider() bool {
	return a != nil && a.Provider != nil && a.Provider.PublicURL != ""
}

// randomText returns 192 random bits.
func randomText() string {
	var b [sessionBytes]byte
	_, _ = rand.Read(b[:]) // never fails
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// StartSignIn begins a sign-in for ten minutes: the browser goes to the address and keeps the
// secret in a cookie. back is the final page.
func (a *Authenticator) StartSignIn(ctx context.Context, back string) (address, secret string, err error) {
	config, err := a.Provider.OAuth(ctx)
	if err != nil {
		return "", "", err
	}
	secret = randomText()
	s := postgres.SignIn{Digest: sha256.Sum256([]byte(secret)), State: randomText(), Nonce: randomText(), Verifier: oauth2.GenerateVerifier(), Back: back}
	if err := a.DB.AddSignIn(ctx, s); err != nil {
		return "", "", err
	}
	return config.AuthCodeURL(s.State, oidc.Nonce(s.Nonce), oauth2.S256ChallengeOption(s.Verifier)), secret, nil
}

// FinishSignIn ends a sign-in once and returns the session secret, Unauthorized, Forbidden, or
// Unavailable.
func (a *Authenticator) FinishSignIn(ctx context.Context, secret string, answer url.Values, from string) (session, back string, err error) {
	digest := sha256.Sum256([]byte(secret))
	if err := a.admit(ctx, func(ctx context.Context) bool { return a.recognizes(ctx, digest) }); err != nil {
		return "", "", err
	}
	s, err := a.DB.TakeSignIn(ctx, digest)
	if err != nil {
		return "", "", err
	}
	if s == nil || subtle.ConstantTimeCompare([]byte(s.State), []byte(answer.Get("state"))) != 1 {
		return "", "", tasker.Errorf(tasker.Unauthorized, "this sign-in is not known, was finished already, or took longer than ten minutes; sign in again")
	}
	if refused := answer.Get("error"); refused != "" {
		return "", "", tasker.Errorf(tasker.Unauthorized, "the identity provider refused the sign-in: %s", shorten(refused))
	}
	config, err := a.Provider.OAuth(ctx)
	if err != nil {
		return "", "", err
	}
	limited, cancel := context.WithTimeout(context.WithValue(ctx, oauth2.HTTPClient, a.Provider.HTTP), idp.AnswerTime)
	defer cancel()
	token, err := config.Exchange(limited, answer.Get("code"), oauth2.VerifierOption(s.Verifier))
	if err != nil {
		return "", "", &tasker.Error{Code: tasker.Unauthorized, Message: "the identity provider does not confirm the sign-in; sign in again", Err: err}
	}
	raw, _ := token.Extra("id_token").(string)
	who, err := a.Provider.Verify(ctx, raw, a.Provider.ClientID)
	if err != nil {
		return "", "", err
	}
	if subtle.ConstantTimeCompare([]byte(who.Nonce), []byte(s.Nonce)) != 1 {
		return "", "", tasker.Errorf(tasker.Unauthorized, "the token is of another sign-in; sign in again")
	}
	subject := access.NewIdentity(who.Subject, nil).Subject
	if len(a.Bindings.Grants(who.Groups)) == 0 {
		return "", "", tasker.Errorf(tasker.Forbidden, "%s may do nothing here: no role is bound to any of their groups", subject)
	}
	session, err = a.begin(ctx, postgres.NewSession{Subject: subject, Groups: who.Groups, From: from})
	return session, s.Back, err
}

// shorten quotes no more of a stranger's text than helps.
func shorten(text string) string {
	const most = 100
	if len(text) > most {
		text = text[:most] + "…"
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}
