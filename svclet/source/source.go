package source

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
)

// The names of the sources, as the annotation kubernetes.io/config.source has
// them.
const (
	API  = "api"
	File = "file"
	HTTP = "http"
)

// Annotations of pods that a node keeps for itself, and those of static pods
// and their mirrors.
const (
	// SourceAnnotation is one of [API], [File] and [HTTP].
	SourceAnnotation = "kubernetes.io/config.source"
	// HashAnnotation is on static pods, and is their UID.
	HashAnnotation = "kubernetes.io/config.hash"
	// MirrorAnnotation is on mirror pods: the hash of their static pod.
	MirrorAnnotation = corev1.MirrorPodAnnotationKey
	// SeenAnnotation is when the node has first heard of the pod, in RFC 3339
	// with nanoseconds.
	SeenAnnotation = "kubernetes.io/config.seen"
)

// Options say where pods come from.
type Options struct {
	// NodeName is that of this node.
	NodeName string

	// Core is a client of the core group, without a rate limit; nil in
	// standalone mode, without an API server.
	Core rest.Interface
	// NodeUID is asked for the UID of the Node, which owns mirror pods. It is
	// nil without mirror pods. While it fails none are created.
	NodeUID func(ctx context.Context) (types.UID, error)
	// Observed, if it is not nil, is told of each pod of the API and of each
	// mirror pod as the API now has it, whatever has changed of it, before the
	// update that tells of it, and Gone of those that the API has no more.
	// Neither may block.
	Observed, Gone func(*corev1.Pod)

	// Path is a directory of manifests or one manifest (--pod-manifest-path);
	// empty for none.
	Path string
	// FileCheckFrequency is how often it is read although nothing has told of a
	// change (--file-check-frequency, 20 s when zero).
	FileCheckFrequency time.Duration

	// URL names more manifests (--manifest-url); empty for none.
	URL string
	// URLHeader are sent with each request (--manifest-url-header). They may be
	// secrets.
	URLHeader http.Header
	// HTTPCheckFrequency is how often the URL is asked
	// (--http-check-frequency, 20 s when zero).
	HTTPCheckFrequency time.Duration

	// Recorder records events about pods; nil for none.
	Recorder record.EventRecorder
	// Clock is the real one when nil.
	Clock clock.WithTicker
}

// Update is what has changed in what one source wants.
type Update struct {
	Source string
	// Set are pods that are new, or of which something has changed that matters
	// to this node.
	Set []*corev1.Pod
	// Removed are pods that the source wants no more, as they last were.
	Removed []*corev1.Pod
	// Ready says that every source has answered: with this update all pods are
	// known that anybody wants. Until then nothing may be stopped for the reason
	// that no source has named it.
	Ready bool
}

// Sources are the places where pods come from.
type Sources struct {
	o       Options
	url     *url.URL
	names   []string
	mirrors *mirrors

	// deliver keeps updates in order.
	deliver sync.Mutex
	updates chan<- Update

	mu       sync.RWMutex
	pods     map[string]map[types.UID]*corev1.Pod
	answered map[string]bool
}

const defaultFrequency = 20 * time.Second

// New checks the options. Without any source it is an error.
func New(o Options) (*Sources, error) {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.FileCheckFrequency <= 0 {
		o.FileCheckFrequency = defaultFrequency
	}
	if o.HTTPCheckFrequency <= 0 {
		o.HTTPCheckFrequency = defaultFrequency
	}
	s := &Sources{o: o, pods: map[string]map[types.UID]*corev1.Pod{}, answered: map[string]bool{}}
	if o.NodeName == "" {
		return nil, errors.New("the node has no name")
	}
	if o.Path != "" {
		s.names = append(s.names, File)
	}
	if o.URL != "" {
		u, err := url.Parse(o.URL)
		switch {
		case err != nil:
			// The error of url.Parse quotes it all, the password included.
			return nil, errors.New("the manifest URL cannot be parsed")
		case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
			return nil, fmt.Errorf("manifest URL %s: must begin with http://HOST or https://HOST", shown(u))
		}
		s.url = u
		s.names = append(s.names, HTTP)
	}
	if o.Core != nil {
		s.names = append(s.names, API)
		s.mirrors = newMirrors(o)
	}
	if len(s.names) == 0 {
		return nil, errors.New("there is no source of pods: name an API server, a path of manifests or a manifest URL")
	}
	return s, nil
}

// Run reads all sources and sends what changes, in order, until ctx is done.
// The first update of each source is sent even when it wants nothing. The
// channel is not closed.
func (s *Sources) Run(ctx context.Context, updates chan<- Update) {
	s.updates = updates
	var all sync.WaitGroup
	if s.o.Core != nil {
		all.Go(func() { s.watchAPI(ctx) })
		all.Go(func() { s.mirrors.run(ctx) })
	}
	if s.o.Path != "" {
		all.Go(func() { s.readFiles(ctx) })
	}
	if s.url != nil {
		all.Go(func() { s.pollURL(ctx) })
	}
	all.Wait()
}

// Ready says whether every source has answered once.
func (s *Sources) Ready() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return len(s.answered) == len(s.names)
}

// Pods are all pods that are wanted now, in no order.
func (s *Sources) Pods() []*corev1.Pod {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var all []*corev1.Pod
	for _, pods := range s.pods {
		for _, pod := range pods {
			all = append(all, pod)
		}
	}
	return all
}

// Pod is the wanted pod of this UID, which is not that of a mirror pod.
func (s *Sources) Pod(uid types.UID) (*corev1.Pod, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, pods := range s.pods {
		if pod, ok := pods[uid]; ok {
			return pod, true
		}
	}
	return nil, false
}

// Mirror is the mirror pod, as the API has it, of the static pod of this UID.
func (s *Sources) Mirror(static types.UID) (*corev1.Pod, bool) {
	if s.mirrors == nil {
		return nil, false
	}
	return s.mirrors.of(static)
}

// Released tells that nothing is left on this node of a pod that a source had
// removed. The mirror of a static pod stays until then, and shows how it ends.
func (s *Sources) Released(pod *corev1.Pod) {
	if s.mirrors != nil && IsStatic(pod) {
		s.mirrors.released(pod)
	}
}

// IsStatic says whether the pod comes from a file or the URL.
func IsStatic(pod *corev1.Pod) bool {
	from := pod.Annotations[SourceAnnotation]
	return from == File || from == HTTP
}

// IsMirror says whether the pod is the API's image of a static pod.
func IsMirror(pod *corev1.Pod) bool {
	_, ok := pod.Annotations[MirrorAnnotation]
	return ok
}
