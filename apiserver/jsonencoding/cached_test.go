package jsonencoding

import (
	"bytes"
	"fmt"
	"io"
	"math/rand"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	"k8s.io/apimachinery/pkg/api/resource"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"

	"svc.dev/svc/apiserver/itemcache"
)

var mediaTypes = []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf}

// libraryCodecs encode lists as a server does that has no cache.
func libraryCodecs() serializer.CodecFactory {
	return serializer.NewCodecFactory(clientgoscheme.Scheme,
		serializer.WithStreamingCollectionEncodingToJSON(), serializer.WithStreamingCollectionEncodingToProtobuf())
}

func cachedCodecs(limit int) Codecs {
	cache := itemcache.New(limit, clocktesting.NewFakePassiveClock(time.Unix(1_700_000_000, 0)))
	return New(clientgoscheme.Scheme, libraryCodecs(), cache)
}

func encode(t testing.TB, codecs runtime.NegotiatedSerializer, mediaType string, obj runtime.Object) []byte {
	t.Helper()
	info, ok := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), mediaType)
	if !ok {
		t.Fatalf("no %s", mediaType)
	}
	var out bytes.Buffer
	if err := info.Serializer.Encode(obj, &out); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// stored returns an object as a watch cache holds it.
func stored(i int) corev1.Pod {
	p := pod(fmt.Sprintf("pod-%d", i), entry("kubectl", `{"f:spec":{"f:containers":{"k:{\"name\":\"c\"}":{".":{},"f:image":{}}}}}`))
	p.TypeMeta, p.UID, p.ResourceVersion = metav1.TypeMeta{}, types.UID(fmt.Sprintf("uid-%d", i)), fmt.Sprint(i)
	return p
}

func listOf(items ...corev1.Pod) *corev1.PodList {
	return &corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, ListMeta: metav1.ListMeta{ResourceVersion: "7"}, Items: slices.Clone(items)}
}

// expectSame fails the test unless the cached codecs encode like the library's.
func expectSame(t *testing.T, codecs runtime.NegotiatedSerializer, obj runtime.Object) {
	t.Helper()
	for _, mediaType := range mediaTypes {
		if want, got := encode(t, libraryCodecs(), mediaType, obj), encode(t, codecs, mediaType, obj); !bytes.Equal(want, got) {
			t.Errorf("%s: encoded\n%q\nwant\n%q", mediaType, got, want)
		}
	}
}

func TestRepeatedListsAreEncodedLikeTheFirst(t *testing.T) {
	items := make([]corev1.Pod, 300)
	for i := range items {
		items[i] = stored(i)
	}
	unmanaged, unnamed := stored(300), stored(301)
	unmanaged.ManagedFields, unnamed.UID = nil, ""
	items = append(items, unmanaged, unnamed)
	for rule, limit := range map[string]int{"all items fit": 1 << 20, "some fit": 20_000, "none fits": 0} {
		t.Run(rule, func(t *testing.T) {
			codecs := cachedCodecs(limit)
			for range 4 {
				expectSame(t, codecs, listOf(items...))
				expectSame(t, codecs, listOf(items[100:150]...))
				expectSame(t, codecs, listOf())
				expectSame(t, codecs, &corev1.PodList{})
				expectSame(t, codecs, &corev1.ConfigMapList{Items: []corev1.ConfigMap{{ObjectMeta: items[0].ObjectMeta}}})
			}
		})
	}
}

func TestChangedObjectsAreEncodedAgain(t *testing.T) {
	codecs := cachedCodecs(1 << 20)
	first := stored(1)
	for range 3 {
		expectSame(t, codecs, listOf(first))
	}
	for rule, change := range map[string]func(p *corev1.Pod){
		"a new version":          func(p *corev1.Pod) { p.ResourceVersion, p.Labels = "2", map[string]string{"a": "b"} },
		"of the same version":    func(p *corev1.Pod) { p.Labels = map[string]string{"a": "c"} },
		"without managed fields": func(p *corev1.Pod) { p.ManagedFields = nil },
		"another object":         func(p *corev1.Pod) { p.UID, p.Name = "other", "other" },
		"with its kind":          func(p *corev1.Pod) { p.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"} },
	} {
		t.Run(rule, func(t *testing.T) {
			changed := *first.DeepCopy()
			if rule == "with its kind" {
				changed = first // the same managed fields
			}
			change(&changed)
			for range 3 {
				expectSame(t, codecs, listOf(changed))
				expectSame(t, codecs, listOf(first))
			}
		})
	}
	t.Run("in another version of the API", func(t *testing.T) {
		list := listOf(first)
		list.APIVersion = "v2"
		expectSame(t, codecs, list)
	})
}

func TestRandomListsAreEncodedLikeTheLibraryEncodesThem(t *testing.T) {
	codecs := cachedCodecs(100_000)
	random := rand.New(rand.NewSource(1)) //nolint:gosec // a test
	fill := fuzzer.FuzzerFor(metafuzzer.Funcs, rand.NewSource(2), libraryCodecs()).NilChance(0.3).NumElements(0, 3)
	objects := make([]corev1.Pod, 40)
	for round := range 60 {
		i := random.Intn(len(objects))
		fresh := corev1.Pod{}
		fill.Fill(&fresh.ObjectMeta)
		fill.Fill(&fresh.Spec.Containers)
		fresh.Spec.NodeName, fresh.UID, fresh.ResourceVersion = fmt.Sprint(round), types.UID(fmt.Sprint(i)), fmt.Sprint(round)
		objects[i] = fresh
		from := random.Intn(len(objects))
		expectSame(t, codecs, listOf(objects[from:from+random.Intn(len(objects)-from)]...))
		expectSame(t, codecs, listOf(objects...))
	}
}

func TestConcurrentListsAndChanges(t *testing.T) {
	codecs, library := cachedCodecs(30_000), libraryCodecs()
	var all sync.WaitGroup
	for worker := range 4 {
		all.Go(func() {
			items := make([]corev1.Pod, 50)
			for i := range items {
				items[i] = stored(i)
			}
			for round := range 30 {
				changed := stored((worker + round) % len(items))
				changed.Labels = map[string]string{"worker": fmt.Sprint(worker), "round": fmt.Sprint(round)}
				items[(worker+round)%len(items)] = changed
				for _, mediaType := range mediaTypes {
					if !bytes.Equal(encode(t, library, mediaType, listOf(items...)), encode(t, codecs, mediaType, listOf(items...))) {
						t.Errorf("worker %d, round %d: %s differs", worker, round, mediaType)
					}
				}
			}
		})
	}
	all.Wait()
}

func BenchmarkEncodeList(b *testing.B) {
	items := make([]corev1.Pod, 1_000)
	for i := range items {
		p := stored(i)
		p.Annotations = map[string]string{"note": strings.Repeat("x", 700)}
		p.Spec = corev1.PodSpec{
			Containers: []corev1.Container{{
				Name: "app", Image: "registry.example.com/team/app:v1.2.3", Command: []string{"/app", "--listen=:8080"},
				Env:       []corev1.EnvVar{{Name: "LOG_LEVEL", Value: "info"}},
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("100m"), "memory": resource.MustParse("128Mi")}},
			}},
			Tolerations: []corev1.Toleration{{Key: "node.kubernetes.io/not-ready", Operator: "Exists", Effect: "NoExecute"}},
		}
		items[i] = p
	}
	list := listOf(items...)
	for _, mediaType := range mediaTypes {
		for name, codecs := range map[string]runtime.NegotiatedSerializer{"library": libraryCodecs(), "fast": New(clientgoscheme.Scheme, libraryCodecs(), nil), "cached": cachedCodecs(itemcache.DefaultLimit)} {
			info, _ := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), mediaType)
			b.Run(mediaType+"/"+name, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if err := info.Serializer.Encode(list, io.Discard); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
