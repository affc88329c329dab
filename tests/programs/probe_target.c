/* What probes are aimed at in tests: answers HTTP/1 GETs and gRPC health checks on one port, and notes every connection.
 *
 * probe-target PORT [STAMPS]: STAMPS gets one line per connection, CLOCK_MONOTONIC in milliseconds. A health check for
 * service "" or "up" is SERVING, "down" NOT_SERVING, "lost" an error NOT_FOUND, "slow" is never answered, and "file"
 * is SERVING as long as /tmp/serving exists. HTTP: /down is a 503, anything else a 200 "ok".
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MOST 128
#define ROOM 8192

struct talk {
    unsigned char in[ROOM];
    size_t got;
    int http2;
};

static struct pollfd fds[MOST];
static struct talk *talks[MOST];
static int count, stamps = -1;

static void send_all(int fd, const void *data, size_t length) {
    ssize_t sent = send(fd, data, length, MSG_NOSIGNAL);
    (void)sent;
}

static void frame(int fd, int kind, int flags, int stream, const void *payload, size_t length) {
    unsigned char out[ROOM] = {0, length >> 8, length, kind, flags, 0, 0, 0, stream};
    memcpy(out + 9, payload, length);
    send_all(fd, out, 9 + length);
}

/* A literal header field that is not remembered, neither part packed. */
static size_t literal(unsigned char *at, const char *name, const char *value) {
    size_t n = strlen(name), v = strlen(value);
    at[0] = 0;
    at[1] = n;
    memcpy(at + 2, name, n);
    at[2 + n] = v;
    memcpy(at + 3 + n, value, v);
    return 3 + n + v;
}

static void answer_health(int fd, const char *service) {
    unsigned char head[64] = {0x88}, tail[128], message[7] = {0, 0, 0, 0, 2, 8, 1};
    const char *code = "0", *text = "";
    if (!strcmp(service, "slow"))
        return;
    if (!strcmp(service, "down") || (!strcmp(service, "file") && access("/tmp/serving", F_OK)))
        message[6] = 2;
    if (!strcmp(service, "lost"))
        code = "5", text = "unknown service";
    frame(fd, 1, 4, 1, head, 1 + literal(head + 1, "content-type", "application/grpc"));
    if (code[0] == '0')
        frame(fd, 0, 0, 1, message, sizeof message);
    size_t length = literal(tail, "grpc-status", code);
    if (*text)
        length += literal(tail + length, "grpc-message", text);
    frame(fd, 1, 5, 1, tail, length);
}

/* The complete frames of an HTTP/2 connection; what is left stays. */
static void take_frames(int fd, struct talk *talk) {
    size_t at = 0;
    while (talk->got - at >= 9) {
        unsigned char *f = talk->in + at;
        size_t length = f[0] << 16 | f[1] << 8 | f[2];
        if (talk->got - at < 9 + length)
            break;
        if (f[3] == 4 && !(f[4] & 1))
            frame(fd, 4, 1, 0, "", 0);
        if (f[3] == 0 && f[4] & 1) {
            char service[256] = "";
            if (length > 7 && f[14] == 0x0a && f[15] < length)
                memcpy(service, f + 16, f[15]);
            answer_health(fd, service);
        }
        at += 9 + length;
    }
    memmove(talk->in, talk->in + at, talk->got - at);
    talk->got -= at;
}

/* 0 = the connection is over. */
static int readable(int fd, struct talk *talk) {
    ssize_t n = recv(fd, talk->in + talk->got, ROOM - talk->got, 0);
    if (n <= 0)
        return 0;
    talk->got += n;
    if (!talk->http2 && talk->got >= 24 && !memcmp(talk->in, "PRI * HTTP/2.0", 14)) {
        talk->http2 = 1;
        talk->got -= 24;
        memmove(talk->in, talk->in + 24, talk->got);
        frame(fd, 4, 0, 0, "", 0);
    }
    if (talk->http2) {
        take_frames(fd, talk);
        return 1;
    }
    if (!memmem(talk->in, talk->got, "\r\n\r\n", 4))
        return talk->got < ROOM;
    int down = !memcmp(talk->in, "GET /down", 9);
    const char *answer = down ? "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 4\r\n\r\ndown"
                              : "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    send_all(fd, answer, strlen(answer));
    return 0;
}

static void stamp(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (stamps >= 0)
        dprintf(stamps, "%lld\n", now.tv_sec * 1000LL + now.tv_nsec / 1000000);
}

int main(int argc, char **argv) {
    int one = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in where = {.sin_family = AF_INET, .sin_port = htons(atoi(argc > 1 ? argv[1] : "80"))};
    FILE *file = argc > 2 ? fopen(argv[2], "a") : NULL;
    if (file)
        stamps = fileno(file);
    signal(SIGTERM, _exit);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener, (struct sockaddr *)&where, sizeof where) || listen(listener, 64)) {
        perror("probe-target");
        return 1;
    }
    fds[count++] = (struct pollfd){.fd = listener, .events = POLLIN};
    for (;;) {
        poll(fds, count, -1);
        for (int i = count - 1; i > 0; i--) {
            if (fds[i].revents && !readable(fds[i].fd, talks[i])) {
                close(fds[i].fd);
                free(talks[i]);
                fds[i] = fds[--count];
                talks[i] = talks[count];
            }
        }
        if (fds[0].revents && count < MOST) {
            int fd = accept(listener, NULL, NULL);
            if (fd < 0)
                continue;
            stamp();
            setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
            talks[count] = calloc(1, sizeof(struct talk));
            fds[count++] = (struct pollfd){.fd = fd, .events = POLLIN};
        }
    }
}
