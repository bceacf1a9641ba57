package web_test

// hostile is a text that wants to be more than a text, wherever it is shown.
const hostile = "<script>alert(1)</script>\"><img src=x onerror=alert(1)>{{.}}javascript:alert(1)\u202edcba"
