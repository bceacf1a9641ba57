package engine

import (
	"container/list"
	"sync"
)

// cache remembers what can be read again, and forgets what was not used for longest
// when it is full.
type cache[K comparable, V any] struct {
	mu    sync.Mutex
	most  int
	m     map[K]*list.Element
	order *list.List // of cached, the last used first
}

type cached[K comparable, V any] struct {
	key   K
	value V
}

func newCache[K comparable, V any](most int) *cache[K, V] {
	return &cache[K, V]{most: most, m: map[K]*list.Element{}, order: list.New()}
}

func (c *cache[K, V]) get(k K) (v V, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at, ok := c.m[k]
	if !ok {
		return v, false
	}
	c.order.MoveToFront(at)
	return at.Value.(cached[K, V]).value, true //nolint:forcetypeassert // nothing else is put in
}

func (c *cache[K, V]) put(k K, v V) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.remove(k)
	if len(c.m) >= c.most {
		c.remove(c.order.Back().Value.(cached[K, V]).key) //nolint:forcetypeassert // nothing else is put in
	}
	c.m[k] = c.order.PushFront(cached[K, V]{k, v})
}

func (c *cache[K, V]) drop(k K) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.remove(k)
}

func (c *cache[K, V]) remove(k K) {
	if at, ok := c.m[k]; ok {
		c.order.Remove(at)
		delete(c.m, k)
	}
}
