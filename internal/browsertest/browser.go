// Package browsertest runs a headless Chromium for tests.
//
// [Open] returns a tab of a headless Chromium that all tests of a package share,
// with cookies of its own; it starts with the first test that asks and ends with
// the test binary. A package that uses it has a TestMain that calls [Run] around
// the others:
//
//	func TestMain(m *testing.M) { os.Exit(browsertest.Run(func() int { return pgtest.Run(m) })) }
package browsertest

import (
	"context"
	_ "embed"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"

	"tasker.example/tasker/internal/testtool"
)

// axe is axe-core 4.14.1, which looks for what keeps people from using a page
// (Mozilla Public License 2.0, axe.LICENSE). It is for tests only.
//
//go:embed axe.min.js
var axe string

// patience bounds one step of a test. Machines that build meanwhile are slow.
const patience = 5 * time.Minute

// browser is what the tests of this process share.
var browser struct {
	once sync.Once
	ctx  context.Context //nolint:containedctx // it is how chromedp hands a browser around
	stop func()
	err  error
}

// Run runs tests and ends the browser after them.
func Run(tests func() int) int {
	code := tests()
	if browser.stop != nil {
		browser.stop()
	}
	return code
}

// names are what Chromium is called, in the order in which it is looked for.
var names = []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome"}

// find returns the path of the browser, or "" when none is installed.
func find() string {
	if path := os.Getenv("TASKER_TEST_CHROMIUM"); path != "" {
		return path
	}
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}

func start() {
	folder, err := os.MkdirTemp("", "tasker-browser-")
	if err != nil {
		browser.err = err
		return
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(find()), chromedp.UserDataDir(folder), chromedp.DisableGPU,
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-background-networking", true),
		chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-sync", true), chromedp.Flag("lang", "en-US"),
		chromedp.Env("TZ=Europe/Berlin", "HOME="+folder, "TMPDIR="+folder), // all that it writes goes with the folder
	)
	if os.Getuid() == 0 {
		options = append(options, chromedp.NoSandbox) // its sandbox does not let root in
	}
	allocator, stopAllocator := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, stopBrowser := chromedp.NewContext(allocator)
	browser.ctx = ctx
	browser.stop = func() {
		stopBrowser()
		stopAllocator()
		_ = os.RemoveAll(folder)
	}
	browser.err = chromedp.Do(ctx) // a context that ended here would end the browser
}

// A Tab is one page of the browser, of one test.
type Tab struct {
	testing.TB
	ctx   context.Context      //nolint:containedctx // it is the tab
	typed input.TimeSinceEpoch // when the last key was pressed, for the page

	mu         sync.Mutex
	complaints []string
}

// Require skips the test when Chromium is not installed, see [testtool.Missing]. [Open]
// asks this too. A test calls it first when it starts something before its first tab
// that a skip must not interrupt.
func Require(t testing.TB) {
	t.Helper()
	if find() == "" {
		testtool.Missing(t, "Chromium", "install the package chromium, or set TASKER_TEST_CHROMIUM to the path of a browser")
	}
}

// Open returns a tab with cookies of its own, 1280 by 900 pixels large. At the end
// of the test it checks that the page raised no error, broke no policy and opened no
// dialog of the browser's own.
func Open(t testing.TB) *Tab {
	t.Helper()
	Require(t)
	browser.once.Do(start)
	if browser.err != nil {
		t.Fatalf("Chromium does not start: %v", browser.err)
	}
	return newTab(t, browser.ctx, chromedp.WithNewBrowserContext())
}

// Another returns one more tab with the same cookies.
func (tab *Tab) Another() *Tab {
	tab.Helper()
	return newTab(tab.TB, tab.ctx)
}

func newTab(t testing.TB, parent context.Context, o ...chromedp.ContextOption) *Tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(parent, o...)
	tab := &Tab{TB: t, ctx: ctx, typed: now()}
	if err := chromedp.Listen(ctx, tab.hear); err != nil {
		cancel()
		t.Fatalf("open a tab: %v", err)
	}
	tab.Size(1280, 900)
	t.Cleanup(func() {
		cancel()
		tab.mu.Lock()
		defer tab.mu.Unlock()
		for _, c := range tab.complaints {
			t.Errorf("the browser says: %s", c)
		}
	})
	return tab
}
