package e2e

import (
	"context"
	"io"
	"net/http"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/rest"

	"svc.dev/svc/test/launch"
)

// request is an HTTP request, sent as it is.
type request struct {
	method, path        string
	contentType, accept string
	body                string
	header              map[string]string
	// anonymous leaves the administrator's certificate out; token is sent
	// instead, if set.
	anonymous bool
	token     string
}

// answer is what came back.
type answer struct {
	status int
	header http.Header
	body   string
}

// asStatus reads the body as the Status that every error must be.
func (a answer) asStatus() metav1.Status {
	GinkgoHelper()
	var status metav1.Status
	Expect(json.Unmarshal([]byte(a.body), &status)).To(Succeed(), a.body)
	Expect(status.Kind).To(Equal("Status"), a.body)
	return status
}

// send sends a request to the suite's server.
func send(r request) answer {
	GinkgoHelper()
	config := rest.CopyConfig(server.Config)
	if r.anonymous {
		config = rest.AnonymousClientConfig(config)
		config.BearerToken = r.token
	}
	client, err := rest.HTTPClientFor(config)
	Expect(err).NotTo(HaveOccurred())

	ctx, cancel := context.WithTimeout(context.Background(), launch.Patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, r.method, config.Host+r.path, strings.NewReader(r.body))
	Expect(err).NotTo(HaveOccurred())
	for name, value := range r.header {
		req.Header.Set(name, value)
	}
	if r.contentType != "" {
		req.Header.Set("Content-Type", r.contentType)
	}
	if r.accept != "" {
		req.Header.Set("Accept", r.accept)
	}
	resp, err := client.Do(req)
	Expect(err).NotTo(HaveOccurred(), "%s %s", r.method, r.path)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	Expect(err).NotTo(HaveOccurred())
	return answer{status: resp.StatusCode, header: resp.Header, body: string(body)}
}
