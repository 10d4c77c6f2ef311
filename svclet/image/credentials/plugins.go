package credentials

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/singleflight"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	kubeletconfig "k8s.io/kubelet/config/v1"
	credentialprovider "k8s.io/kubelet/pkg/apis/credentialprovider/v1"
	"k8s.io/utils/clock"
)

// Plugins are credential provider plugins: programs that return credentials for an
// image (KEP-2133).
type Plugins struct {
	plugins []*plugin
	metrics *pluginMetrics
}

// NewPlugins finds the programs of a configuration in a directory. They run when a
// matching image is pulled.
func NewPlugins(config *PluginConfig, binDir string, clock clock.PassiveClock) (*Plugins, error) {
	p := &Plugins{metrics: newPluginMetrics(config.Hash)}
	for i := range config.Providers {
		provider := &config.Providers[i]
		program, err := exec.LookPath(filepath.Join(binDir, provider.Name))
		if err != nil {
			return nil, fmt.Errorf("credential provider plugin %s: %w", provider.Name, err)
		}
		p.plugins = append(p.plugins, &plugin{
			CredentialProvider: provider,
			program:            program,
			clock:              clock,
			metrics:            p.metrics,
			cache:              map[string]cached{},
		})
	}
	return p, nil
}

// Lookup returns the logins for a repository from each matching plugin. The
// failure of a plugin is logged.
func (p *Plugins) Lookup(ctx context.Context, repository string) []Login {
	keyring := new(Keyring)
	for _, each := range p.plugins {
		config, err := each.provide(ctx, repository)
		if err != nil {
			klog.ErrorS(err, "Failed to provide credentials for image", "provider", each.Name, "image", repository)
			continue
		}
		keyring.Add(config)
	}
	return keyring.Lookup(repository)
}

// Metrics returns kubelet's metrics of plugins.
func (p *Plugins) Metrics() []prometheus.Collector {
	return []prometheus.Collector{p.metrics.errors, p.metrics.duration, p.metrics.config}
}

type plugin struct {
	*kubeletconfig.CredentialProvider
	program  string
	clock    clock.PassiveClock
	metrics  *pluginMetrics
	requests singleflight.Group

	mu    sync.Mutex
	cache map[string]cached
}

type cached struct {
	config Config
	until  time.Time
}

// globalKey is the cache key of answers for all images. No image has this name.
const globalKey = "<global>"

func registryOf(image string) string {
	registry, _, _ := strings.Cut(image, "/")
	return registry
}

// provide returns the plugin's answer, cached or new.
func (p *plugin) provide(ctx context.Context, image string) (Config, error) {
	if !p.isFor(image) {
		return nil, nil
	}
	if config, ok := p.remembered(image); ok {
		return config, nil
	}
	// Concurrent callers for one image share one answer, so it is not cancelled with
	// any one of them.
	answer := p.requests.DoChan(image, func() (any, error) {
		return p.request(context.WithoutCancel(ctx), image)
	})
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case a := <-answer:
		if a.Err != nil {
			return nil, fmt.Errorf("failed to get credential from external registry credential provider: %w", a.Err)
		}
		return a.Val.(Config), nil
	}
}

func (p *plugin) isFor(image string) bool {
	for _, pattern := range p.MatchImages {
		if Matches(pattern, image) {
			return true
		}
	}
	return false
}

func (p *plugin) remembered(image string) (Config, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.clock.Now()
	for _, key := range []string{image, registryOf(image), globalKey} {
		if entry, ok := p.cache[key]; ok && now.Before(entry.until) {
			return entry.config, true
		}
	}
	return nil, false
}

// request runs the plugin and caches its answer for the duration that it sets.
func (p *plugin) request(ctx context.Context, image string) (Config, error) {
	response, err := p.run(ctx, image)
	if err != nil {
		return nil, err
	}
	config := make(Config, len(response.Auth))
	for registry, login := range response.Auth {
		config[registry] = Login{Username: login.Username, Password: login.Password}
	}
	lifetime := p.DefaultCacheDuration.Duration
	if response.CacheDuration != nil {
		lifetime = response.CacheDuration.Duration
	}
	if lifetime > 0 {
		p.remember(image, response.CacheKeyType, config, lifetime)
	}
	return config, nil
}

func (p *plugin) remember(image string, keyType credentialprovider.PluginCacheKeyType, config Config, lifetime time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.clock.Now()
	for key, entry := range p.cache {
		if !now.Before(entry.until) {
			delete(p.cache, key)
		}
	}
	key := image
	switch keyType {
	case credentialprovider.RegistryPluginCacheKeyType:
		key = registryOf(image)
	case credentialprovider.GlobalPluginCacheKeyType:
		key = globalKey
	}
	p.cache[key] = cached{config: config, until: now.Add(lifetime)}
}

const (
	// pluginTimeout bounds one run of a plugin.
	pluginTimeout = time.Minute
	// maxAnswer bounds the output of a plugin, in bytes.
	maxAnswer = 1 << 20
)

// run writes the request to the plugin's standard input and reads the answer from
// its standard output.
func (p *plugin) run(ctx context.Context, image string) (*credentialprovider.CredentialProviderResponse, error) {
	request, err := json.Marshal(credentialprovider.CredentialProviderRequest{
		TypeMeta: metav1.TypeMeta{APIVersion: p.APIVersion, Kind: "CredentialProviderRequest"},
		Image:    image,
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, pluginTimeout)
	defer cancel()
	command := exec.CommandContext(ctx, p.program, p.Args...)
	// Processes that the plugin leaves running must not keep its output open.
	command.WaitDelay = time.Second
	command.Env = os.Environ()
	for _, each := range p.Env {
		command.Env = append(command.Env, each.Name+"="+each.Value)
	}
	var stdout, stderr limited
	command.Stdin, command.Stdout, command.Stderr = bytes.NewReader(request), &stdout, &stderr

	began := p.clock.Now()
	err = command.Run()
	p.metrics.duration.WithLabelValues(p.Name).Observe(p.clock.Since(began).Seconds())
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	if err != nil {
		p.metrics.errors.WithLabelValues(p.Name).Inc()
		return nil, fmt.Errorf("error execing credential provider plugin %s for image %s: %w: %q", p.Name, image, err, endOfOutput(stderr.String()))
	}
	return decodeResponse(stdout.Bytes(), p.APIVersion)
}

// maxOutput bounds how much of a plugin's error output is in an error, in bytes.
const maxOutput = 1 << 10

// endOfOutput returns the end of the error output, where programs usually report why
// they fail.
func endOfOutput(output string) string {
	output = strings.TrimSpace(output)
	if len(output) <= maxOutput {
		return output
	}
	return "..." + output[len(output)-maxOutput:]
}

// limited is a buffer that keeps the first mebibyte.
type limited struct{ bytes.Buffer }

func (l *limited) Write(p []byte) (int, error) {
	if _, err := l.Buffer.Write(p[:min(len(p), maxAnswer-l.Len())]); err != nil {
		return 0, err
	}
	return len(p), nil
}

// pluginMetrics are kubelet's: names, help texts and labels.
type pluginMetrics struct {
	errors   *prometheus.CounterVec
	duration *prometheus.HistogramVec
	config   prometheus.Gauge
}

func newPluginMetrics(hash string) *pluginMetrics {
	m := &pluginMetrics{
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_credential_provider_plugin_errors_total",
			Help: "[ALPHA] Number of errors from credential provider plugin",
		}, []string{"plugin_name"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "kubelet_credential_provider_plugin_duration",
			Help:    "[ALPHA] Duration of execution in seconds for credential provider plugin",
			Buckets: prometheus.DefBuckets,
		}, []string{"plugin_name"}),
		config: prometheus.NewGauge(prometheus.GaugeOpts{
			Name:        "kubelet_credential_provider_config_info",
			Help:        "[ALPHA] Information about the last applied credential provider configuration with hash as label",
			ConstLabels: prometheus.Labels{"hash": hash},
		}),
	}
	m.config.Set(1)
	return m
}
