package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// inCluster asks the API server as every program in a pod does: with client-go's
// configuration for pods, and one client for as long as the program runs.
type inCluster struct {
	connect func() (*account, error)
}

func newInCluster() inCluster { return inCluster{sync.OnceValues(connect)} }

// account is a client with the pod's account.
type account struct {
	*kubernetes.Clientset
	// token identifies the token of the last request.
	token atomic.Value
}

func connect() (*account, error) {
	config, err := rest.InClusterConfig()
	if err != nil {
		return nil, err
	}
	a := &account{}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return observer{a, next} })
	a.Clientset, err = kubernetes.NewForConfig(config)
	return a, err
}

// observer records which token requests carry.
type observer struct {
	of   *account
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (o observer) RoundTrip(r *http.Request) (*http.Response, error) {
	sum := sha256.Sum256([]byte(r.Header.Get("Authorization")))
	o.of.token.Store(hex.EncodeToString(sum[:8]))
	return o.next.RoundTrip(r)
}

// whoAmI responds with the user name that the API server knows, and with what
// identifies the token; with new=true, as a program that starts now.
func (c inCluster) whoAmI(w http.ResponseWriter, r *http.Request) {
	of := c.connect
	if r.FormValue("new") == "true" {
		of = connect
	}
	client, err := of()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	self, err := client.AuthenticationV1().SelfSubjectReviews().Create(r.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		fail(w, err)
		return
	}
	respond(w, self.Status.UserInfo.Username+" "+client.token.Load().(string))
}

// ask sends a request, and responds as the API server does.
func (c inCluster) ask(w http.ResponseWriter, r *http.Request) {
	client, err := c.connect()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	content, err := client.RESTClient().Verb(r.FormValue("verb")).AbsPath(r.FormValue("path")).DoRaw(r.Context())
	if err != nil {
		fail(w, err)
		return
	}
	respond(w, string(content))
}

func respond(w http.ResponseWriter, text string) {
	_, _ = w.Write([]byte(text)) // the client may have disconnected
}

// fail responds with the status of the API server, if it has answered.
func fail(w http.ResponseWriter, err error) {
	code := http.StatusBadGateway
	var answer apierrors.APIStatus
	if errors.As(err, &answer) && answer.Status().Code != 0 {
		code = int(answer.Status().Code)
	}
	http.Error(w, err.Error(), code)
}
