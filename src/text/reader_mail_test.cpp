#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "text/mime.h"
#include "text/readers.h"

namespace rhapsode::text {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

Document mail(const std::string& bytes) {
  auto document = read_mail("inbox", bytes);
  EXPECT_TRUE(document.ok()) << document.error().message;
  return document.ok() ? *std::move(document) : Document();
}

TEST(MailReader, ASimpleMailKeepsWhatPeopleRead) {
  const Document document = mail(
      "Received: from a by b\r\nFrom: Ada Lovelace <ada@example.org>\r\nTo: Bob <bob@example.org>\r\n"
      "Date: Thu, 5 Jul 2001 10:30:00 +0200\r\nSubject: =?utf-8?Q?Gr=C3=BC=C3=9Fe?= "
      "=?utf-8?B?IGFuIEJvYg==?=\r\n"
      "Content-Type: text/plain; charset=iso-8859-1\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n"
      "Sch=F6ne Gr=\r\n=FC=DFe.\r\n");
  EXPECT_EQ(
      document.text,
      "From: Ada Lovelace <ada@example.org>\nTo: Bob <bob@example.org>\nDate: 2001-07-05T10:30:00+02:00\n"
      "Subject: Grüße an Bob\n\nSchöne Grüße.\n");
  EXPECT_EQ(document.title, "Grüße an Bob");
  EXPECT_EQ(document.author, "Ada Lovelace");
  EXPECT_EQ(document.date, "2001-07-05T10:30:00+02:00");
  EXPECT_TRUE(document.extracted);
}

TEST(MailReader, PrefersPlainTextAndNamesAttachments) {
  const Document document = mail(
      "From: a@b.org\nSubject: x\nContent-Type: multipart/mixed; boundary=\"out;er\"\n\npreamble\n--out;er\n"
      "Content-Type: multipart/alternative; boundary=inner\n\n--inner\nContent-Type: "
      "text/html\n\n<p>html</p>\n"
      "--inner\nContent-Type: text/plain\nContent-Transfer-Encoding: base64\n\ncGxhaW4gdGV4dA==\n--inner--\n"
      "--out;er\nContent-Type: application/pdf; name=\"a.pdf\"\nContent-Disposition: attachment; "
      "filename=b.pdf\n\n%PDF\n"
      "--out;er--\nepilogue\n");
  EXPECT_THAT(document.text, HasSubstr("plain text"));
  EXPECT_THAT(document.text, Not(HasSubstr("html")));
  EXPECT_THAT(document.text, Not(HasSubstr("epilogue")));
  EXPECT_THAT(document.warnings, ElementsAre(HasSubstr("'b.pdf' (application/pdf)")));
}

TEST(MailReader, ReadsHtmlWhereThereIsNoPlainText) {
  const Document document = mail(
      "From: a@b.org\nSubject: x\nContent-Type: text/html; charset=utf-8\n\n<html><style>p{}</style><p>Hello "
      "<b>there</b>.</p></html>");
  EXPECT_THAT(document.text, HasSubstr("Hello there."));
  EXPECT_THAT(document.text, Not(HasSubstr("<b>")));
}

TEST(MailReader, AnMboxIsSplitAtItsFromLines) {
  const Document document = mail(
      "From a@b.org Thu Jul  5 10:30:00 2001\nFrom: Ada <a@b.org>\nDate: 5 Jul 2001 10:30:00 +0000\nSubject: "
      "One\n\n"
      "From here on, text.\n>From the start.\n>>From twice.\n\n"
      "From b@b.org Fri Jul  6 10:30:00 2001\nFrom: Bob <b@b.org>\nSubject: Two\n\nSecond.\n");
  ASSERT_EQ(document.sections.size(), 2u);
  EXPECT_EQ(document.sections[0].path, "One (Ada, 2001-07-05T10:30:00Z)");
  EXPECT_EQ(document.sections[1].path, "Two (Bob)");
  EXPECT_THAT(document.text, HasSubstr("From here on, text.\nFrom the start.\n>From twice."));
  EXPECT_EQ(document.text.substr(document.sections[1].begin),
            "From: Bob <b@b.org>\nSubject: Two\n\nSecond.\n");
  EXPECT_EQ(document.title, "");
}

TEST(MailReader, ForwardedMailsAreRead) {
  const Document document = mail(
      "From: a@b.org\nSubject: Fwd\nContent-Type: multipart/mixed; boundary=b\n\n--b\n\nSee below.\n--b\n"
      "Content-Type: message/rfc822\n\nFrom: c@d.org\nSubject: Inner\n\nThe inner text.\n--b--\n");
  EXPECT_THAT(document.text,
              HasSubstr("See below.\n\nForwarded from: c@d.org\nSubject: Inner\n\nThe inner text."));
}

TEST(MailReader, IsToldFromOtherText) {
  EXPECT_TRUE(is_mail("From: a\nDate: b\n\n"));
  EXPECT_TRUE(is_mail("From a@b Thu Jul  5 10:30:00 2001\nReceived: x\nfrom: y\nsubject: z\n\n"));
  EXPECT_FALSE(is_mail("From the beginning: of time in 2001\nto: the end\n"));
  EXPECT_FALSE(is_mail("PEP: 8\nTitle: x\nAuthor: y\n"));
  EXPECT_FALSE(is_mail("int x; // From: a\nDate: b"));
  EXPECT_FALSE(is_mail(""));
}

TEST(MailReader, HostileInputEndsSoon) {
  std::string deep = "From: a\nSubject: x\n";
  for (int i = 0; i < 20000; ++i) deep += "Content-Type: multipart/mixed; boundary=b\n\n--b\n";
  deep += "text";
  static_cast<void>(read_mail("a", deep));
  std::string parts = "From: a\nSubject: x\nContent-Type: multipart/mixed; boundary=b\n\n";
  for (int i = 0; i < 300000; ++i) parts += "--b\n\nx\n";
  mail(parts);
  std::string escaped = "From: a\nSubject: x\n\n";
  for (int i = 0; i < 300000; ++i) escaped += ">From \n";
  mail(escaped);
  mail("From: a\nSubject: " + std::string(1000000, '=') + "\n\nx");
  std::mt19937 random(7);
  const std::vector<std::string> units = {"From: a\n",
                                          "From a 2001 10:00\n",
                                          "\n",
                                          "--b\n",
                                          "--b--\n",
                                          "=?utf-8?Q?=",
                                          "?=",
                                          "Content-Type: multipart/mixed; boundary=b\n",
                                          "=\n",
                                          "=F",
                                          "\xFF",
                                          "Content-Type: text/plain; charset=\"x\n",
                                          " ",
                                          "Subject: s\n",
                                          "Content-Transfer-Encoding: base64\n",
                                          "QUJD",
                                          std::string(1, '\0')};
  for (int round = 0; round < 300; ++round) {
    std::string text = "From: a\nSubject: b\n";
    for (size_t i = random() % 60; i > 0; --i) text += units[random() % units.size()];
    static_cast<void>(read_mail("a", text));
    static_cast<void>(is_mail(text));
  }
}

TEST(Mime, ParametersOfFields) {
  EXPECT_EQ(field_value("Text/HTML; charset=utf-8"), "text/html");
  EXPECT_EQ(field_parameter("a/b; x=\"1;2\"; Charset=utf-8 ; y=3", "charset"), "utf-8");
  EXPECT_EQ(field_parameter("a/b; x=\"1;2\"", "x"), "1;2");
  EXPECT_EQ(field_parameter("a/b; x=\"open", "x"), "open");
  EXPECT_EQ(field_parameter("a/b", "x"), "");
}

}  // namespace
}  // namespace rhapsode::text
