/* Runs shell commands in the guest for the host, over one virtio-serial port.
 *
 * Frames both ways: type (1 byte), job (4), length (4), payload; little endian, at most kMaxPayload bytes of
 * payload. from the host   H hello: ends all jobs, answered by h with the same payload R run: payload is the
 * limit in seconds (4) and a shell command I data for standard input, E end of standard input, K kill to the
 * host     O standard output, S standard error, X ended: exit code (4), 1 if the limit passed (4) A zero byte
 * between frames means nothing: a host that starts anew sends enough of them to end a frame that was cut.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { kMaxJobs = 32, kHeader = 9, kMaxPayload = 16384, kKillGraceMs = 2000, kFdsPerJob = 4 };

struct job {
  uint32_t id;
  pid_t pid; /* 0: slot is free; also the process group */
  int pidfd;
  int in;     /* -1: closed */
  int out[2]; /* standard output and error; -1: closed */
  int64_t deadline_ms;
  bool limit_passed;
  size_t pending, pending_at; /* standard input not yet taken by the child */
  uint8_t stdin_data[kMaxPayload];
};

static struct job jobs[kMaxJobs];
static int port;
static uint8_t frame[kHeader + kMaxPayload + 1]; /* being received; one byte more for a terminating zero */
static size_t frame_bytes;

static int64_t now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static uint32_t load32(const uint8_t* p) {
  return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static void store32(uint8_t* p, uint32_t value) {
  for (int i = 0; i < 4; ++i) p[i] = (uint8_t)(value >> (8 * i));
}

static void close_fd(int* fd) {
  if (*fd >= 0) close(*fd);
  *fd = -1;
}

static void write_all(const uint8_t* data, size_t bytes) {
  while (bytes > 0) {
    const ssize_t n = write(port, data, bytes);
    if (n > 0) {
      data += n;
      bytes -= (size_t)n;
    } else if (n == 0 || errno != EINTR) {
      return; /* the host is gone; the next hello starts anew */
    }
  }
}

static void send_frame(char type, uint32_t job, const void* payload, size_t bytes) {
  static uint8_t out[kHeader + kMaxPayload];
  out[0] = (uint8_t)type;
  store32(out + 1, job);
  store32(out + 5, (uint32_t)bytes);
  memcpy(out + kHeader, payload, bytes);
  write_all(out, kHeader + bytes);
}

static struct job* find_job(uint32_t id) {
  for (int i = 0; i < kMaxJobs; ++i) {
    if (jobs[i].pid != 0 && jobs[i].id == id) return &jobs[i];
  }
  return NULL;
}

static void report_end(uint32_t id, int code, bool limit_passed) {
  uint8_t payload[8];
  store32(payload, (uint32_t)code);
  store32(payload + 4, limit_passed);
  send_frame('X', id, payload, sizeof payload);
}

static void run_child(const char* command, int in, int out, int err) {
  setsid();
  dup2(in, 0);
  dup2(out, 1);
  dup2(err, 2);
  close_range(3, ~0U, 0);
  execl("/usr/bin/dash", "sh", "-c", command, (char*)NULL); /* busybox sh would prefer its own small ip */
  _exit(127);
}

static struct job* free_slot(void) {
  for (int i = 0; i < kMaxJobs; ++i) {
    if (jobs[i].pid == 0) return &jobs[i];
  }
  return NULL;
}

static void start_job(uint32_t id, uint32_t limit_s, const char* command) {
  struct job* job = free_slot();
  int in[2], out[2], err[2];
  if (job == NULL || pipe2(in, O_CLOEXEC) || pipe2(out, O_CLOEXEC) || pipe2(err, O_CLOEXEC)) {
    report_end(id, 125, false);
    return;
  }
  const pid_t pid = fork();
  if (pid == 0) run_child(command, in[0], out[1], err[1]);
  close(in[0]);
  close(out[1]);
  close(err[1]);
  *job = (struct job){.id = id,
                      .pid = pid,
                      .pidfd = pidfd_open(pid, 0),
                      .in = in[1],
                      .out = {out[0], err[0]},
                      .deadline_ms = now_ms() + (int64_t)limit_s * 1000};
  fcntl(job->in, F_SETFL, O_NONBLOCK);
  fcntl(job->out[0], F_SETFL, O_NONBLOCK);
  fcntl(job->out[1], F_SETFL, O_NONBLOCK);
}

/* Passes on what the child has written. */
static void forward_output(struct job* job, int which) {
  uint8_t data[kMaxPayload];
  while (job->out[which] >= 0) {
    const ssize_t n = read(job->out[which], data, sizeof data);
    if (n > 0) send_frame(which == 0 ? 'O' : 'S', job->id, data, (size_t)n);
    if (n == 0) close_fd(&job->out[which]);
    if (n <= 0) return;
  }
}

static void release_job(struct job* job) {
  close_fd(&job->in);
  close_fd(&job->out[0]);
  close_fd(&job->out[1]);
  close_fd(&job->pidfd);
  job->pid = 0;
}

static void finish_job(struct job* job) {
  int status = 0;
  if (waitpid(job->pid, &status, WNOHANG) != job->pid) return;
  forward_output(job, 0);
  forward_output(job, 1);
  report_end(job->id, WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), job->limit_passed);
  release_job(job);
}

static void end_all_jobs(void) {
  for (int i = 0; i < kMaxJobs; ++i) {
    if (jobs[i].pid == 0) continue;
    kill(-jobs[i].pid, SIGKILL);
    waitpid(jobs[i].pid, NULL, 0);
    release_job(&jobs[i]);
  }
}

static void feed_child(struct job* job) {
  const ssize_t n = write(job->in, job->stdin_data + job->pending_at, job->pending);
  if (n > 0) {
    job->pending_at += (size_t)n;
    job->pending -= (size_t)n;
  } else if (n < 0 && errno != EAGAIN && errno != EINTR) {
    job->pending = 0;
    close_fd(&job->in);
  }
}

static void on_input(struct job* job, const uint8_t* data, uint32_t bytes) {
  if (job->in < 0) return;
  memcpy(job->stdin_data, data, bytes);
  job->pending = bytes;
  job->pending_at = 0;
  feed_child(job);
}

static void on_frame(void) {
  const uint32_t id = load32(frame + 1), bytes = load32(frame + 5);
  uint8_t* payload = frame + kHeader;
  struct job* job = find_job(id);
  switch (frame[0]) {
    case 'H':
      end_all_jobs();
      send_frame('h', id, payload, bytes);
      break;
    case 'R':
      payload[bytes] = 0;
      if (bytes > 4 && job == NULL) start_job(id, load32(payload), (const char*)payload + 4);
      break;
    case 'I':
      if (job != NULL) on_input(job, payload, bytes);
      break;
    case 'E':
      if (job != NULL) close_fd(&job->in);
      break;
    case 'K':
      if (job != NULL) kill(-job->pid, SIGKILL);
      break;
    default:
      break;
  }
}

/* Drops zero bytes between frames. */
static void skip_padding(void) {
  size_t zeros = 0;
  while (zeros < frame_bytes && frame[zeros] == 0) ++zeros;
  frame_bytes -= zeros;
  memmove(frame, frame + zeros, frame_bytes);
}

/* Reads no further than the end of the present frame, so that a full pipe stops the host. */
static void read_port(void) {
  size_t want = kHeader;
  if (frame_bytes >= kHeader) want += load32(frame + 5);
  const ssize_t n = read(port, frame + frame_bytes, want - frame_bytes);
  if (n <= 0) {
    usleep(20000); /* nobody is connected */
    return;
  }
  frame_bytes += (size_t)n;
  skip_padding();
  if (frame_bytes < kHeader) return;
  const uint32_t bytes = load32(frame + 5);
  if (bytes > kMaxPayload) {
    frame_bytes = 0;
  } else if (frame_bytes == kHeader + bytes) {
    on_frame();
    frame_bytes = 0;
  }
}

static void enforce_limits(void) {
  const int64_t now = now_ms();
  for (int i = 0; i < kMaxJobs; ++i) {
    struct job* job = &jobs[i];
    if (job->pid == 0 || now < job->deadline_ms) continue;
    kill(-job->pid, job->limit_passed ? SIGKILL : SIGTERM);
    job->limit_passed = true;
    job->deadline_ms = now + kKillGraceMs;
  }
}

static void serve_once(void) {
  struct pollfd fds[1 + kMaxJobs * kFdsPerJob];
  bool blocked = false;
  for (int i = 0; i < kMaxJobs; ++i) {
    const struct job* job = &jobs[i];
    const bool live = job->pid != 0;
    const bool feeding = live && job->in >= 0 && job->pending > 0;
    blocked = blocked || feeding;
    struct pollfd* of = fds + 1 + i * kFdsPerJob;
    of[0] = (struct pollfd){.fd = live ? job->pidfd : -1, .events = POLLIN};
    of[1] = (struct pollfd){.fd = live ? job->out[0] : -1, .events = POLLIN};
    of[2] = (struct pollfd){.fd = live ? job->out[1] : -1, .events = POLLIN};
    of[3] = (struct pollfd){.fd = feeding ? job->in : -1, .events = POLLOUT};
  }
  fds[0] = (struct pollfd){.fd = blocked ? -1 : port, .events = POLLIN};
  poll(fds, sizeof fds / sizeof fds[0], 100);
  for (int i = 0; i < kMaxJobs; ++i) {
    const struct pollfd* of = fds + 1 + i * kFdsPerJob;
    if (of[1].revents) forward_output(&jobs[i], 0);
    if (of[2].revents) forward_output(&jobs[i], 1);
    if (of[3].revents) feed_child(&jobs[i]);
    if (of[0].revents) finish_job(&jobs[i]);
  }
  if (fds[0].revents) read_port();
  enforce_limits();
}

int main(int argc, char** argv) {
  if (argc != 2 || (port = open(argv[1], O_RDWR | O_CLOEXEC)) < 0) {
    perror("agent");
    return 1;
  }
  signal(SIGPIPE, SIG_IGN);
  for (;;) serve_once();
}
