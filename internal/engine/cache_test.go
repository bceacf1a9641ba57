package engine

import (
	"fmt"
	"strings"
	"testing"

	"tasker.example/tasker"
)

func TestCacheEvictsTheLeastRecentlyUsed(t *testing.T) {
	t.Parallel()
	c := newCache[int](3, func(string) int { return 1 })
	for i := range 3 {
		c.put(i, fmt.Sprint(i))
	}
	c.get(0)
	c.put(3, "3")
	c.put(3, "three")
	for k, want := range map[int]string{0: "0", 2: "2", 3: "three"} {
		if got, ok := c.get(k); !ok || got != want {
			t.Errorf("%d is %q, %v", k, got, ok)
		}
	}
	if v, ok := c.get(1); ok {
		t.Errorf("1 is still %q", v)
	}
	c.drop(0)
	if _, ok := c.get(0); ok || len(c.m) != 2 || c.order.Len() != 2 {
		t.Errorf("after a drop %d are there", len(c.m))
	}
}

func TestCacheIsBoundedInBytes(t *testing.T) {
	t.Parallel()
	c := newCache[int](1000, func(int) int { return tasker.MaxCacheBytes / 4 })
	for i := range 100 {
		c.put(i, i)
		c.put(i, i) // again, which counts once
	}
	if len(c.m) != 4 || c.bytes != tasker.MaxCacheBytes {
		t.Errorf("%d values of a quarter are there, %d bytes", len(c.m), c.bytes)
	}
	for i := range 100 {
		c.drop(i)
	}
	if c.bytes != 0 {
		t.Errorf("an empty cache has %d bytes", c.bytes)
	}
}

func TestNotificationsAreSplitBySize(t *testing.T) {
	t.Parallel()
	var namespaces, told []string
	for i := range 300 {
		namespaces = append(namespaces, fmt.Sprintf("%0128d", i))
	}
	for _, m := range encodeMessages("me", namespaces) {
		if len(m) >= 8000 {
			t.Errorf("a message of %d bytes", len(m))
		}
		words := strings.Fields(m)
		if words[0] != "me" {
			t.Errorf("a message of %q", words[0])
		}
		told = append(told, words[1:]...)
	}
	if strings.Join(told, " ") != strings.Join(namespaces, " ") {
		t.Errorf("%d of %d namespaces are told", len(told), len(namespaces))
	}
}
