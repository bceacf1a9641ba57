package browsertest

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// observe records forbidden actions of a page: it must not throw errors, violate its content
// security policy, or open browser dialogs, as an injected script would.
func (tab *Tab) observe(event any) {
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		tab.recordError("error: " + e.ExceptionDetails.Text + " " + formatException(e.ExceptionDetails))
	case *log.EventEntryAdded:
		if text := e.Entry.Text; strings.Contains(text, "Content Security Policy") || e.Entry.Level == "error" && !isExpectedError(text) {
			tab.recordError(text + " " + e.Entry.URL)
		}
	case *page.EventJavascriptDialogOpening:
		tab.recordError("dialog: " + e.Message)
	}
}

// isExpectedError reports whether a log entry is caused by an error page.
func isExpectedError(text string) bool {
	return strings.Contains(text, "the server responded with a status of 4")
}

func formatException(d *runtime.ExceptionDetails) string {
	if d.Exception == nil {
		return ""
	}
	return d.Exception.Description
}

func (tab *Tab) recordError(text string) {
	tab.mu.Lock()
	defer tab.mu.Unlock()
	tab.complaints = append(tab.complaints, text)
}

// do runs actions with a timeout.
func (tab *Tab) do(what string, actions ...chromedp.Action[chromedp.Void]) {
	tab.Helper()
	ctx, cancel := context.WithTimeout(tab.ctx, actionTimeout)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		tab.Fatalf("%s: %v; the page is %s", what, err, tab.describeLocation())
	}
}

func run[T any](tab *Tab, what string, action chromedp.Action[T]) T {
	tab.Helper()
	ctx, cancel := context.WithTimeout(tab.ctx, actionTimeout)
	defer cancel()
	v, err := chromedp.Run(ctx, action)
	if err != nil {
		tab.Fatalf("%s: %v; the page is %s", what, err, tab.describeLocation())
	}
	return v
}

// describeLocation returns the address and the beginning of the page's text for error messages.
func (tab *Tab) describeLocation() string {
	ctx, cancel := context.WithTimeout(tab.ctx, actionTimeout/6)
	defer cancel()
	text, _ := chromedp.Run(ctx, chromedp.Evaluate[string](`location.href + "\n" + document.body.innerText.slice(0, 1500)`))
	return text
}

// Go opens a URL and waits for the page.
func (tab *Tab) Go(url string) {
	tab.Helper()
	tab.do("go to "+url, chromedp.Navigate(url))
}

// Reload reloads the page.
func (tab *Tab) Reload() {
	tab.Helper()
	tab.do("reload", chromedp.Reload())
}

// Address returns the URL of the page.
func (tab *Tab) Address() string {
	tab.Helper()
	return run(tab, "read the address", chromedp.Location())
}

// Click waits for a visible element that matches a CSS selector and clicks it. If a live page
// replaces the element meanwhile, it clicks the new one.
func (tab *Tab) Click(selector string) {
	tab.Helper()
	tab.do("click "+selector, chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		for {
			_, err := chromedp.Click(chromedp.CSS(selector), chromedp.NodeVisible)(ctx, t)
			if err == nil || ctx.Err() != nil || !strings.Contains(err.Error(), "Could not find node") {
				return err
			}
		}
	}))
}

// Follow clicks a link or a button and waits for the next page.
func (tab *Tab) Follow(selector string) {
	tab.Helper()
	tab.waitForNavigation(func() { tab.Click(selector) })
}

// Keys presses keys one after another in the focused element. "\r" is Enter, "\t" is Tab. Their
// simulated times correspond to typing speed, even on a slow machine.
func (tab *Tab) Keys(keys string) {
	tab.Helper()
	for _, key := range keys {
		tab.typed = min(tab.typed+0.1, currentTime())
		tab.do(fmt.Sprintf("press %q", key), pressKey(key, tab.typed))
	}
}

func currentTime() input.TimeSinceEpoch {
	return input.TimeSinceEpoch(float64(time.Now().UnixMicro()) / 1e6)
}

// pressKey returns a key press. As in a real window, the text is part of keyDown, so a page that
// handles the key can suppress it.
func pressKey(key rune, at input.TimeSinceEpoch) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		events := kb.Encode(key)
		down, up := *events[0], *events[len(events)-1]
		if len(events) > 2 {
			down.Type, down.Text, down.UnmodifiedText = "keyDown", events[1].Text, events[1].UnmodifiedText
		}
		down.Timestamp, up.Timestamp = at, at
		if _, err := cdp.Call(ctx, t, input.DispatchKeyEvent, down); err != nil {
			return err
		}
		_, err := cdp.Call(ctx, t, input.DispatchKeyEvent, up)
		return err
	})
}

// KeysAway presses keys and waits for the next page.
func (tab *Tab) KeysAway(keys string) {
	tab.Helper()
	tab.waitForNavigation(func() { tab.Keys(keys) })
}

// waitForNavigation calls f and waits for the next page.
func (tab *Tab) waitForNavigation(f func()) {
	tab.Helper()
	run(tab, "mark the page", chromedp.Evaluate[bool](`window.left = true`))
	f()
	tab.Until(`!window.left && document.readyState === "complete"`)
}

// Type waits for a field and replaces its content.
func (tab *Tab) Type(selector, text string) {
	tab.Helper()
	field := fmt.Sprintf(`document.querySelector(%s)`, quote(selector))
	tab.Until(fmt.Sprintf(`%[1]s && %[1]s.offsetParent`, field))
	tab.Eval(fmt.Sprintf(`const f = %s; f.focus(); f.select()`, field))
	tab.Keys("\b" + text)
}

// Choose selects an option of a select element by its value.
func (tab *Tab) Choose(selector, value string) {
	tab.Helper()
	tab.do("wait for "+selector, chromedp.WaitVisible(chromedp.CSS(selector)))
	tab.Eval(fmt.Sprintf(`const field = document.querySelector(%q); field.value = %s; field.dispatchEvent(new Event("change", {bubbles: true}))`,
		selector, quote(value)))
}

// ChooseAway selects an option and waits for the next page.
func (tab *Tab) ChooseAway(selector, value string) {
	tab.Helper()
	tab.waitForNavigation(func() { tab.Choose(selector, value) })
}

// Text waits for an element and returns its visible text.
func (tab *Tab) Text(selector string) string {
	tab.Helper()
	return run(tab, "read "+selector, chromedp.Text(chromedp.CSS(selector)))
}

// Value returns the value of a field.
func (tab *Tab) Value(selector string) string {
	tab.Helper()
	return run(tab, "read "+selector, chromedp.Value(chromedp.CSS(selector)))
}

// Texts returns the texts of all matching elements.
func (tab *Tab) Texts(selector string) []string {
	tab.Helper()
	script := fmt.Sprintf(`[...document.querySelectorAll(%q)].map((e) => e.innerText.trim())`, selector)
	return run(tab, "read all "+selector, chromedp.Evaluate[[]string](script))
}

// Has reports whether an element exists.
func (tab *Tab) Has(selector string) bool {
	tab.Helper()
	return tab.Is(fmt.Sprintf(`document.querySelector(%q) !== null`, selector))
}

// Is evaluates a boolean expression.
func (tab *Tab) Is(expression string) bool {
	tab.Helper()
	return run(tab, expression, chromedp.Evaluate[bool](expression))
}

// Answer evaluates a string expression, or a promise of a string.
func (tab *Tab) Answer(expression string) string {
	tab.Helper()
	return run(tab, expression, chromedp.Evaluate[string](expression, chromedp.EvalAwaitPromise))
}

// Eval runs a script and ignores its result.
func (tab *Tab) Eval(script string) {
	tab.Helper()
	run(tab, script, chromedp.Evaluate[bool]("(() => {"+script+"; return true})()"))
}

// Until waits until an expression is true.
func (tab *Tab) Until(expression string) {
	tab.Helper()
	ctx, cancel := context.WithTimeout(tab.ctx, actionTimeout)
	defer cancel()
	for {
		// Evaluation fails during a navigation.
		if is, err := chromedp.Run(ctx, chromedp.Evaluate[bool]("!!("+expression+")")); err == nil && is {
			return
		}
		select {
		case <-ctx.Done():
			tab.Fatalf("waited in vain for %s; the page is %s", expression, tab.describeLocation())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Sees waits until the page shows a text.
func (tab *Tab) Sees(text string) {
	tab.Helper()
	tab.Until(fmt.Sprintf(`document.body.innerText.includes(%s)`, quote(text)))
}

func quote(text string) string {
	b, _ := json.Marshal(text) // cannot fail
	return string(b)
}

// Size sets the size of the window.
func (tab *Tab) Size(width, height int64) {
	tab.Helper()
	tab.do("resize", chromedp.EmulateViewport(width, height))
}

// Dark sets the preferred color scheme.
func (tab *Tab) Dark(dark bool) {
	tab.Helper()
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	tab.do("prefer "+scheme, chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{
				{Name: "prefers-color-scheme", Value: scheme},
				{Name: "prefers-reduced-motion", Value: "reduce"}, // no transition between the colors
			},
		})
		return err
	}))
}

// View saves a picture of the visible part of the page as name.png in the folder in the variable
// TASKER_TEST_SCREENSHOTS. If the variable is not set, it does nothing.
func (tab *Tab) View(name string) {
	tab.Helper()
	folder := os.Getenv("TASKER_TEST_SCREENSHOTS")
	if folder == "" {
		return
	}
	png := run(tab, "take a picture", chromedp.CaptureScreenshot())
	if err := os.MkdirAll(folder, 0o755); err != nil {
		tab.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, name+".png"), png, 0o600); err != nil {
		tab.Fatal(err)
	}
}

// Fits waits until the page is no wider than the window.
func (tab *Tab) Fits() {
	tab.Helper()
	tab.Until(`document.documentElement.scrollWidth <= window.innerWidth`)
}

// finding is a rule of axe that the page violates.
type finding struct {
	ID, Impact, Help string
	Nodes            []struct {
		HTML           string
		FailureSummary string
	}
}

// Accessible checks the page against the rules of WCAG 2.2 AA that can be tested. Serious and
// critical violations fail the test.
func (tab *Tab) Accessible() {
	tab.Helper()
	tab.checkRules(`["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]`)
}

// Readable checks only the rules that depend on colors and on the width of the window, for a page
// that is Accessible otherwise.
func (tab *Tab) Readable() {
	tab.Helper()
	tab.checkRules(`{type: "rule", values: ["color-contrast", "target-size", "scrollable-region-focusable"]}`)
}

// checkRules runs axe with some of its rules.
func (tab *Tab) checkRules(rules string) {
	tab.Helper()
	if !tab.Is(`"axe" in window`) {
		run(tab, "load axe", chromedp.Evaluate[bool](axe+"\n;true"))
	}
	found := run(tab, "run axe", chromedp.Evaluate[[]finding](
		`axe.run(document, {resultTypes: ["violations"], preload: false, runOnly: `+rules+`})
		.then((r) => r.violations.map((v) => ({ID: v.id, Impact: v.impact, Help: v.help,
			Nodes: v.nodes.map((n) => ({HTML: n.html, FailureSummary: n.failureSummary}))})))`,
		chromedp.EvalAwaitPromise))
	for _, f := range found {
		if f.Impact != "serious" && f.Impact != "critical" {
			tab.Logf("%s: %s (%s)", f.Impact, f.Help, f.ID)
			continue
		}
		for _, n := range f.Nodes {
			tab.Errorf("%s: %s: %s (%s)\n%s\n%s", tab.Address(), f.Impact, f.Help, f.ID, n.HTML, n.FailureSummary)
		}
	}
}
