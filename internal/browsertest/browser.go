// Package browsertest runs a headless Chromium for tests.
//
// [Open] returns a tab, with its own cookies, of a browser that all tests of a package share. The
// first test starts the browser, and the test binary stops it. A package that uses it needs a
// TestMain that calls [Run]:
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

// axe is axe-core 4.14.1, which checks the accessibility of pages (Mozilla Public License 2.0,
// axe.LICENSE). It is for tests only.
//
//go:embed axe.min.js
var axe string

// actionTimeout is the timeout of one action. It suffices for a busy machine.
const actionTimeout = 5 * time.Minute

// browser is shared by all tests of this process.
var browser struct {
	once sync.Once
	ctx  context.Context //nolint:containedctx // chromedp represents a browser by a context
	stop func()
	err  error
}

// Run runs tests and then stops the browser.
func Run(tests func() int) int {
	code := tests()
	if browser.stop != nil {
		browser.stop()
	}
	return code
}

// names lists possible names of Chromium's executable.
var names = []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome"}

// findBrowser returns the path of the browser, or "" if it is not installed.
func findBrowser() string {
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

func startBrowser() {
	folder, err := os.MkdirTemp("", "tasker-browser-")
	if err != nil {
		browser.err = err
		return
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(findBrowser()), chromedp.UserDataDir(folder), chromedp.DisableGPU,
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-background-networking", true),
		chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-sync", true), chromedp.Flag("lang", "en-US"),
		chromedp.Env("TZ=Europe/Berlin", "HOME="+folder, "TMPDIR="+folder), // so that all files are in the folder
	)
	if os.Getuid() == 0 {
		options = append(options, chromedp.NoSandbox) // the sandbox does not work for root
	}
	allocator, stopAllocator := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, stopBrowser := chromedp.NewContext(allocator)
	browser.ctx = ctx
	browser.stop = func() {
		stopBrowser()
		stopAllocator()
		_ = os.RemoveAll(folder)
	}
	browser.err = chromedp.Do(ctx) // without timeout: the end of its context would stop the browser
}

// A Tab is a page of the browser, for one test.
type Tab struct {
	testing.TB
	ctx   context.Context      //nolint:containedctx // chromedp represents a tab by a context
	typed input.TimeSinceEpoch // simulated time of the last key

	mu         sync.Mutex
	complaints []string
}

// Require skips the test if Chromium is not installed, see [testtool.Missing]. [Open] calls it.
// Call it first if the test starts something else before its first tab.
func Require(t testing.TB) {
	t.Helper()
	if findBrowser() == "" {
		testtool.Missing(t, "Chromium", "install the package chromium, or set TASKER_TEST_CHROMIUM to the path of a browser")
	}
}

// Open returns a tab with its own cookies and a size of 1280 by 900 pixels. The test fails at its
// end if there were script errors, policy violations or browser dialogs.
func Open(t testing.TB) *Tab {
	t.Helper()
	Require(t)
	browser.once.Do(startBrowser)
	if browser.err != nil {
		t.Fatalf("Chromium does not start: %v", browser.err)
	}
	return newTab(t, browser.ctx, chromedp.WithNewBrowserContext())
}

// Another returns another tab with the same cookies.
func (tab *Tab) Another() *Tab {
	tab.Helper()
	return newTab(tab.TB, tab.ctx)
}

func newTab(t testing.TB, parent context.Context, o ...chromedp.ContextOption) *Tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(parent, o...)
	tab := &Tab{TB: t, ctx: ctx, typed: currentTime()}
	if err := chromedp.Listen(ctx, tab.observe); err != nil {
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
