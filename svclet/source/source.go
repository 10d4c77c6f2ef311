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

// The names of the sources, which are the values of the annotation
// kubernetes.io/config.source.
const (
	API  = "api"
	File = "file"
	HTTP = "http"
)

// Annotations that a node adds to its pods, and those of static pods and their
// mirrors.
const (
	// SourceAnnotation is one of [API], [File] and [HTTP].
	SourceAnnotation = "kubernetes.io/config.source"
	// HashAnnotation is the UID of a static pod.
	HashAnnotation = "kubernetes.io/config.hash"
	// MirrorAnnotation is the hash of a mirror pod's static pod.
	MirrorAnnotation = corev1.MirrorPodAnnotationKey
	// SeenAnnotation is when the node first received the pod, in RFC 3339 with
	// nanoseconds.
	SeenAnnotation = "kubernetes.io/config.seen"
)

// Options configure [Sources].
type Options struct {
	// NodeName is the name of this node.
	NodeName string

	// Core is a client of the core group, without a rate limit; nil in
	// standalone mode, without an API server.
	Core rest.Interface
	// NodeUID returns the UID of the Node, which owns mirror pods. It is nil without
	// mirror pods. While it returns an error, no mirror pods are created.
	NodeUID func(ctx context.Context) (types.UID, error)
	// Observed, if set, is called with each pod and each mirror pod of the API server
	// at every change, before the update that contains it. Gone is called with those
	// removed from the API server. Neither may block.
	Observed, Gone func(*corev1.Pod)

	// Path is a directory of manifests or one manifest (--pod-manifest-path), empty
	// for none.
	Path string
	// FileCheckFrequency is the period of reading Path without a file system event
	// (--file-check-frequency, 20 s if zero).
	FileCheckFrequency time.Duration

	// URL has more manifests (--manifest-url), empty for none.
	URL string
	// URLHeader is sent with each request (--manifest-url-header). It may contain
	// secrets.
	URLHeader http.Header
	// HTTPCheckFrequency is the polling period of the URL (--http-check-frequency, 20
	// s if zero).
	HTTPCheckFrequency time.Duration

	// Recorder records events about pods; nil for none.
	Recorder record.EventRecorder
	// Clock is the system clock by default.
	Clock clock.WithTicker
}

// Update is a change of what one source wants.
type Update struct {
	Source string
	// Set are new pods, and pods with a change that matters to this node.
	Set []*corev1.Pod
	// Removed are pods that the source no longer wants, in their last state.
	Removed []*corev1.Pod
	// Ready reports that every source has answered, so that all desired pods are known
	// with this update. Before that, no pod may be stopped because no source wants it.
	Ready bool
}

// Sources are the sources of pods.
type Sources struct {
	o       Options
	url     *url.URL
	names   []string
	mirrors *mirrors
	rules   podRules // empty without static pods

	// deliver serializes updates.
	deliver sync.Mutex
	updates chan<- Update

	mu       sync.RWMutex
	pods     map[string]map[types.UID]*corev1.Pod
	answered map[string]bool
}

const defaultFrequency = 20 * time.Second

// New validates the options. It returns an error if there is no source.
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
			// The error of url.Parse contains the whole URL, including a password.
			return nil, errors.New("the manifest URL cannot be parsed")
		case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
			return nil, fmt.Errorf("manifest URL %s: must begin with http://HOST or https://HOST", redacted(u))
		}
		s.url = u
		s.names = append(s.names, HTTP)
	}
	if o.Core != nil {
		s.names = append(s.names, API)
		s.mirrors = newMirrors(o)
	}
	if o.Path != "" || o.URL != "" {
		var err error
		if s.rules, err = newPodRules(); err != nil {
			return nil, err
		}
	}
	if len(s.names) == 0 {
		return nil, errors.New("there is no source of pods: name an API server, a path of manifests or a manifest URL")
	}
	return s, nil
}

// Run reads all sources and sends changes, in order, until ctx is done. The first
// update of each source is sent even if it has no pods. The channel is not closed.
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

// Ready reports whether every source has answered.
func (s *Sources) Ready() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return len(s.answered) == len(s.names)
}

// Pods returns all desired pods, in no order.
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

// Pod returns the desired pod with this UID, which is not the UID of a mirror pod.
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

// Mirror returns the mirror pod, from the API server, of a static pod.
func (s *Sources) Mirror(static *corev1.Pod) (*corev1.Pod, bool) {
	if s.mirrors == nil {
		return nil, false
	}
	return s.mirrors.of(static)
}

// Released records that nothing is left on this node of a pod that a source has
// removed. The mirror of a static pod is kept until then, and shows how the pod
// terminates.
func (s *Sources) Released(pod *corev1.Pod) {
	if s.mirrors != nil && IsStatic(pod) {
		s.mirrors.released(pod)
	}
}

// IsStatic reports whether the pod comes from a file or the URL.
func IsStatic(pod *corev1.Pod) bool {
	from := pod.Annotations[SourceAnnotation]
	return from == File || from == HTTP
}

// IsMirror reports whether the pod has the annotation of mirror pods. Any client that may
// create pods can set it, with the UID of any pod: see [IsMirrorOf].
func IsMirror(pod *corev1.Pod) bool {
	_, ok := pod.Annotations[MirrorAnnotation]
	return ok
}

// IsMirrorOf reports whether the pod is the mirror of this static pod: it has its name, its
// namespace and, in the annotation, its UID.
func IsMirrorOf(pod, static *corev1.Pod) bool {
	return IsMirror(pod) && IsStatic(static) && keyOf(pod) == keyOf(static) && StaticUID(pod) == static.UID
}
