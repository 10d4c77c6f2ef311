package definitioncache

import (
	"runtime"
	"testing"
	"time"
	"weak"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func definition(resourceVersion string) *apiextensionsv1.CustomResourceDefinition {
	return &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "widgets.example.com", ResourceVersion: resourceVersion}}
}

// describe returns a cache of descriptions of definitions, and how many it has made.
func describe() (*Cache[string], *int) {
	made := new(int)
	return New(func(d *apiextensionsv1.CustomResourceDefinition, version string) string {
		*made++
		return d.ResourceVersion + " " + version
	}), made
}

func TestWhatIsMadeOfADefinitionIsKeptUntilItChanges(t *testing.T) {
	cache, made := describe()
	first, second := definition("1"), definition("2")
	for i, step := range []struct {
		definition *apiextensionsv1.CustomResourceDefinition
		version    string
		want       string
		made       int
	}{{first, "v1", "1 v1", 1}, {first, "v1", "1 v1", 1}, {first, "v2", "1 v2", 2}, {second, "v1", "2 v1", 3}, {second, "v1", "2 v1", 3}} {
		if got := cache.Of(step.definition, step.version); got != step.want || *made != step.made {
			t.Errorf("step %d: got %q after %d were made, want %q after %d", i, got, *made, step.want, step.made)
		}
	}
	runtime.KeepAlive(first)
	runtime.KeepAlive(second)
}

func TestWhatIsMadeOfADefinitionIsDroppedWithIt(t *testing.T) {
	cache, _ := describe()
	used := definition("1")
	freed := func() weak.Pointer[apiextensionsv1.CustomResourceDefinition] {
		other := definition("1")
		other.Name = "others.example.com"
		cache.Of(used, "v1")
		cache.Of(other, "v1")
		return weak.Make(other)
	}()
	kept := func() int {
		cache.mu.Lock()
		defer cache.mu.Unlock()
		return len(cache.items)
	}
	for deadline := time.Now().Add(time.Minute); freed.Value() != nil || kept() > 1; runtime.GC() {
		if time.Now().After(deadline) {
			t.Fatal("the definition, or what was made of it, is kept")
		}
	}
	if kept() != 1 {
		t.Error("what was made of a definition in use is dropped")
	}
	runtime.KeepAlive(used)
}
