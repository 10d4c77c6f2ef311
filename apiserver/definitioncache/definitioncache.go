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
	made       T
}

// New returns an empty cache of what the function makes of a version of a definition.
func New[T any](make func(definition *apiextensionsv1.CustomResourceDefinition, version string) T) *Cache[T] {
	return &Cache[T]{make: make, items: map[key]item[T]{}}
}

// Of returns what is made of a version of a definition. The definition must be immutable:
// those of informers are.
func (c *Cache[T]) Of(definition *apiextensionsv1.CustomResourceDefinition, version string) T {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := key{definition.Name, version}
	if found, ok := c.items[key]; ok && found.definition.Value() == definition {
		return found.made
	}
	made := c.make(definition, version)
	c.items[key] = item[T]{weak.Make(definition), made}
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
