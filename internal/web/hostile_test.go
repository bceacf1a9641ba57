package web_test

import "tasker.example/tasker/internal/browsertest"

// hostile is a text that tries to become markup, wherever it is shown.
const hostile = "<script>alert(1)</script>\"><img src=x onerror=alert(1)>{{.}}javascript:alert(1)\u202edcba'--></title></textarea>"

// seesHostile checks that a page shows the hostile text as text, also in a narrow window.
func seesHostile(tab *browsertest.Tab) {
	tab.Helper()
	tab.Eval(`document.querySelectorAll("details").forEach((d) => { d.open = true })`)
	tab.Sees(`<script>alert(1)</script>"><img src=x onerror=alert(1)>{{.}}javascript:alert(1)`)
	if tab.Has("main script, main img") || tab.Is(`[...document.querySelectorAll("a")].some((a) => !/^[#/]/.test(a.getAttribute("href")))`) {
		tab.Errorf("%s has an element that a text made", tab.Address())
	}
	tab.Size(390, 800)
	tab.Fits()
	tab.Size(1280, 900)
	tab.Accessible()
}
