// Package definitioncache holds what is made of the versions of CustomResourceDefinitions,
// such as converted schemas, as long as the definitions are in memory.
package definitioncache

import (
	"runtime"
	"sync"
	"weak"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// Cache holds a T for each version of a definition that was asked for. It has no reference
// to the definitions: their cleanup holds the cache, and must not hold them. So what is
// made of a definition must not refer to it, either.
type Cache[T any] struct {
	make func(definition *apiextensionsv1.CustomResourceDefinition, version string) T

	mu    sync.Mutex
	items map[key]item[T]
}

type key struct{ name, version string }

// item is what was made of a version. A definition that has changed is another object.
type item[T any] struct {
	definition weak.Pointer[apiextensionsv1.CustomResourceDefinition]
	made       func() T
}

// New returns an empty cache of what the function makes of a version of a definition.
func New[T any](make func(definition *apiextensionsv1.CustomResourceDefinition, version string) T) *Cache[T] {
	return &Cache[T]{make: make, items: map[key]item[T]{}}
}

// Of returns what is made of a version of a definition. The definition must be immutable:
// those of informers are.
func (c *Cache[T]) Of(definition *apiextensionsv1.CustomResourceDefinition, version string) T {
	made := c.of(definition, version)() // without the lock: it may take long
	runtime.KeepAlive(definition)
	return made
}

func (c *Cache[T]) of(definition *apiextensionsv1.CustomResourceDefinition, version string) func() T {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := key{definition.Name, version}
	held := weak.Make(definition)
	if found := c.items[key]; found.definition == held {
		return found.made
	}
	// The value must not refer to the definition, so it is made from the weak pointer: that
	// is set as long as a caller of Of has the definition.
	made := sync.OnceValue(func() T { return c.make(held.Value(), version) })
	c.items[key] = item[T]{held, made}
	runtime.AddCleanup(definition, c.forget, key)
	return made
}

// forget drops what was made of a definition that is not in memory any more.
func (c *Cache[T]) forget(key key) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if found, ok := c.items[key]; ok && found.definition.Value() == nil {
		delete(c.items, key)
	}
}
